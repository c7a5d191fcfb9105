package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func TestMain(m *testing.M) {
	plugins.RegisterDefaultPlugins() // so that panels and queries decode into their own types
	os.Exit(m.Run())
}

// panel is what the tests need of a panel's JSON.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  ref    `json:"datasource"`
	Interval    string `json:"interval"`
	Targets     []struct {
		Datasource ref    `json:"datasource"`
		Expr       string `json:"expr"`
		RefID      string `json:"refId"`
		Exemplar   bool   `json:"exemplar"`
		Instant    bool   `json:"instant"`
		Range      bool   `json:"range"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
		Overrides []struct {
			Properties []struct {
				ID    string `json:"id"`
				Value any    `json:"value"`
			} `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	Options struct {
		YAxis struct {
			Unit string `json:"unit"`
		} `json:"yAxis"`
	} `json:"options"`
}

type ref struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// board is what the tests need of a dashboard's JSON.
type board struct {
	UID        string  `json:"uid"`
	Title      string  `json:"title"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Type       string `json:"type"`
			Name       string `json:"name"`
			Datasource *ref   `json:"datasource"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Links []struct {
		URL string `json:"url"`
	} `json:"links"`
}

// committed reads a file of the folder above.
func committed(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// boards are the committed dashboards by file.
func boards(t *testing.T) map[string]board {
	t.Helper()
	all := map[string]board{}
	for name := range files() {
		var b board
		if err := json.Unmarshal(committed(t, name), &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = b
	}
	return all
}

func TestCommittedDashboardsAreCurrent(t *testing.T) {
	for name, b := range files() {
		want, err := render(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, committed(t, name)) {
			t.Errorf("dashboards/%s is not what the generator writes: run make generate", name)
		}
	}
}

// Grafana ignores what it does not know, so a misspelt option would go unseen.
func TestDashboardsDecodeStrictly(t *testing.T) {
	for name := range files() {
		var d dashboard.Dashboard
		if err := decode(&d, committed(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Validate(); err != nil && err.Error() != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// decode decodes strictly. Where a panel is all right, the SDK returns an error
// that lists nothing.
func decode(d *dashboard.Dashboard, text []byte) error {
	if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err
	}
	return nil
}

func TestMisspeltOptionsAreFound(t *testing.T) {
	for _, option := range []string{`"fillOpacity"`, `"legendFormat"`, `"colorMode"`, `"cellGap"`, `"graphTooltip"`} {
		found := false
		for name := range files() {
			text := bytes.Replace(committed(t, name), []byte(option), []byte(`"misspelt"`), 1)
			var d dashboard.Dashboard
			found = found || decode(&d, text) != nil
		}
		if !found {
			t.Errorf("nobody notices that %s is misspelt", option)
		}
	}
}

func TestIDsAndTitlesAreUnique(t *testing.T) {
	uids := map[string]string{}
	for name, b := range boards(t) {
		for _, key := range []string{b.UID, b.Title} {
			if other, twice := uids[key]; twice || key == "" {
				t.Errorf("%s and %s are both %q", name, other, key)
			}
			uids[key] = name
		}
		if len(b.UID) > 40 {
			t.Errorf("%s: Grafana refuses a uid of over 40 characters", name)
		}
		ids, titles := map[int]bool{}, map[string]bool{}
		for _, p := range b.Panels {
			if p.ID == 0 || ids[p.ID] {
				t.Errorf("%s: panel %q has the id %d, which is 0 or another's", name, p.Title, p.ID)
			}
			if p.Title == "" || titles[p.Title] {
				t.Errorf("%s: two panels are called %q", name, p.Title)
			}
			ids[p.ID], titles[p.Title] = true, true
			refs := map[string]bool{}
			for _, q := range p.Targets {
				if refs[q.RefID] {
					t.Errorf("%s: %s has two queries %s", name, p.Title, q.RefID)
				}
				refs[q.RefID] = true
			}
		}
	}
}

// A data source that is written into a dashboard exists in one Grafana only, and
// an input such as ${DS_PROMETHEUS} is unknown where files are provisioned.
func TestDataSourceIsAVariableEverywhere(t *testing.T) {
	chosen := ref{Type: "prometheus", UID: "${datasource}"}
	for name, b := range boards(t) {
		offered := false
		for _, v := range b.Templating.List {
			offered = offered || v.Type == "datasource" && v.Name == "datasource"
			if v.Type == "query" && (v.Datasource == nil || *v.Datasource != chosen) {
				t.Errorf("%s: variable %s reads %v", name, v.Name, v.Datasource)
			}
		}
		if !offered {
			t.Errorf("%s lets nobody choose a data source", name)
		}
		for _, p := range b.Panels {
			if p.Type == "row" {
				continue
			}
			if p.Datasource != chosen {
				t.Errorf("%s: %s reads %v", name, p.Title, p.Datasource)
			}
			for _, q := range p.Targets {
				if q.Datasource != chosen {
					t.Errorf("%s: query %s of %s reads %v", name, q.RefID, p.Title, q.Datasource)
				}
			}
		}
		if text := string(committed(t, name)); strings.Contains(text, "__inputs") || strings.Contains(text, "${DS_") {
			t.Errorf("%s asks for an input on import", name)
		}
	}
}

func TestEveryPanelIsDescribedHasAUnitAndQueries(t *testing.T) {
	for name, b := range boards(t) {
		for _, p := range b.Panels {
			if p.Type == "row" {
				continue
			}
			if !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s: %s is not described", name, p.Title)
			}
			unit := p.FieldConfig.Defaults.Unit + p.Options.YAxis.Unit
			for _, o := range p.FieldConfig.Overrides {
				for _, property := range o.Properties {
					if property.ID == "unit" {
						unit += fmt.Sprint(property.Value)
					}
				}
			}
			if unit == "" {
				t.Errorf("%s: %s has no unit", name, p.Title)
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: %s shows nothing", name, p.Title)
			}
			// With less than two scrapes in it, a rate is empty.
			if p.Interval != minInterval {
				t.Errorf("%s: %s has the least interval %q, want %s", name, p.Title, p.Interval, minInterval)
			}
			for _, q := range p.Targets {
				if strings.TrimSpace(q.Expr) == "" {
					t.Errorf("%s: query %s of %s is empty", name, q.RefID, p.Title)
				}
			}
		}
	}
}

func TestOverviewAndDetailOfferTheirVariables(t *testing.T) {
	want := map[string][]string{
		"overview.json": {"datasource", "service", "endpoint", "hop"},
		"hop.json":      {"datasource", "service", "hop"},
	}
	for name, b := range boards(t) {
		var got []string
		for _, v := range b.Templating.List {
			got = append(got, v.Name)
		}
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s has the variables %q, want %q", name, got, want[name])
		}
		known := slices.Concat(got, []string{"__rate_interval", "__range", "__all", "__url_time_range", "__data"})
		for _, m := range regexp.MustCompile(`\$\{?([a-z_]+)`).FindAllStringSubmatch(string(committed(t, name)), -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s uses $%s, which nobody sets", name, m[1])
			}
		}
	}
}

func TestEdgesAreMarked(t *testing.T) {
	for _, name := range []string{"overview.json", "hop.json"} {
		text := regexp.MustCompile(`\s+`).ReplaceAllString(string(committed(t, name)), "")
		if !strings.Contains(text, `{"value":0.8,"color":"orange"},{"value":1,"color":"red"}`) {
			t.Errorf("%s does not mark 0.8 and 1", name)
		}
	}
}

func TestLinksResolve(t *testing.T) {
	all := boards(t)
	var uids []string
	for _, b := range all {
		uids = append(uids, b.UID)
	}
	to := regexp.MustCompile(`/d/([a-z-]+)`)
	for name := range all {
		found := to.FindAllStringSubmatch(string(committed(t, name)), -1)
		if len(found) == 0 {
			t.Errorf("%s leads nowhere", name)
		}
		for _, m := range found {
			if !slices.Contains(uids, m[1]) {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`docs/[a-z]+\.md`).FindAllString(string(committed(t, name)), -1) {
			if _, err := os.Stat(filepath.Join("../..", m)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestRunbooksExist(t *testing.T) {
	docs, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := string(committed(t, "alerts.yaml"))
	links := regexp.MustCompile(`runbook_url: .*/blob/main/docs/findings\.md#([a-z-]+)\n`).FindAllStringSubmatch(alerts, -1)
	if n := strings.Count(alerts, "- alert:"); n == 0 || len(links) != n {
		t.Errorf("%d alerts, %d of them with a runbook in docs/findings.md", n, len(links))
	}
	for _, m := range links {
		if !bytes.Contains(docs, []byte("\n## "+m[1]+"\n")) {
			t.Errorf("docs/findings.md has no heading %s", m[1])
		}
	}
}

// exposed is what Prometheus calls the series of a metric: dots become
// underscores, the unit comes behind the name, and a sum is a total.
func exposed(name, unit, kind string) []string {
	base := strings.ReplaceAll(name, ".", "_")
	if unit == "s" {
		base += "_seconds"
	}
	switch kind {
	case "sum":
		return []string{base + "_total"}
	case "gauge":
		return []string{base}
	}
	return []string{base, base + "_bucket", base + "_sum", base + "_count"}
}

// Every name in a query is that of a metric that the Collector makes, and every
// metric is looked at by somebody. (What Prometheus really stores is tested with
// the demo.)
func TestQueriesAndCollectorNameTheSameMetrics(t *testing.T) {
	made := map[string]string{ // series to metric
		calls:                "latency_budget.calls", // both by span_metrics, in its namespace
		duration:             "latency_budget.duration",
		duration + "_bucket": "latency_budget.duration",
		duration + "_sum":    "latency_budget.duration",
		duration + "_count":  "latency_budget.duration",
		planShare:            "rules made from the plan",
		planCap:              "rules made from the plan",
	}
	collector := string(committed(t, "collector.yaml"))
	entry := regexp.MustCompile(`(?s)        name: (latency_budget\.\S+)\n        description: [^\n]*\n        unit: "?([^"\n]*)"?\n.*?        (sum|gauge|exponential_histogram):`)
	for _, m := range entry.FindAllStringSubmatch(strings.ReplaceAll(collector, "      - name", "        name"), -1) {
		for _, series := range exposed(m[1], m[2], m[3]) {
			made[series] = m[1]
		}
	}
	used := map[string]bool{}
	name := regexp.MustCompile(`latency_budget[a-z_:]*`)
	labels := []string{caller, callee, operation, flag, "latency_budget_attempt", "latency_budget_degraded"}
	check := func(where, text string) {
		for _, series := range name.FindAllString(text, -1) {
			if slices.Contains(labels, series) {
				continue
			}
			if made[series] == "" {
				t.Errorf("%s asks for %s, which nobody makes", where, series)
			}
			used[made[series]] = true
		}
	}
	for file, b := range boards(t) {
		for _, v := range b.Templating.List {
			check(file, v.Definition)
		}
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				check(file+" "+p.Title, q.Expr)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?s)expr: \|\n(.*?)\n        (for|labels):`).FindAllStringSubmatch(string(committed(t, "alerts.yaml")), -1) {
		check("alerts.yaml", m[1])
	}
	for _, metric := range slices.Sorted(maps.Values(made)) {
		if !used[metric] {
			t.Errorf("nobody looks at %s", metric)
		}
	}
}

// A query that is right with classic buckets must find native histograms too.
func TestHistogramsAreReadInBothForms(t *testing.T) {
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				for _, histogram := range []string{duration, utilization, arrival, overrun, workAfter} {
					classic := strings.Contains(q.Expr, histogram+"_bucket{") || strings.Contains(q.Expr, histogram+"_sum{")
					if native := strings.Contains(q.Expr, histogram+"{"); classic != native {
						t.Errorf("%s: %s reads %s in one form only", file, p.Title, histogram)
					}
				}
			}
		}
	}
}

// Over a range topk picks anew at every step, so more series show than it names.
func TestTheHighestArePickedOnce(t *testing.T) {
	found := false
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if !strings.Contains(q.Expr, "topk(") {
					continue
				}
				if found = true; !q.Instant || q.Range {
					t.Errorf("%s: %s asks for the highest at every step", file, p.Title)
				}
			}
		}
	}
	if !found {
		t.Error("no query picks the highest")
	}
}

// A name with &, # or % in it must not end the value that a link gives a variable.
func TestLinksEscapeNames(t *testing.T) {
	found := false
	for file := range boards(t) {
		for _, m := range regexp.MustCompile(`\$\{__data\.fields\.[^}]*\}`).FindAllString(string(committed(t, file)), -1) {
			if found = true; !strings.HasSuffix(m, ":percentencode}") {
				t.Errorf("%s: a link has the bare %s", file, m)
			}
		}
	}
	if !found {
		t.Error("no link names a hop")
	}
}

func TestOnlyOneQueryOfTheDetailShowsExemplars(t *testing.T) {
	var with []string
	for _, p := range boards(t)["hop.json"].Panels {
		for _, q := range p.Targets {
			if q.Exemplar {
				with = append(with, p.Title+" "+q.RefID)
			}
		}
	}
	if want := []string{"Duration against share and cap A"}; !slices.Equal(with, want) {
		t.Errorf("exemplars at %q, want %q", with, want)
	}
}

// promtool runs Prometheus's own tool in the folder of the dashboards. Where
// LATENCYBUDGET_COLLECTOR is set it must be there, for so runs `make e2e`.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("LATENCYBUDGET_COLLECTOR") != "" {
			t.Fatal("promtool is not on PATH; Debian has it in the package prometheus")
		}
		t.Skip("promtool is not on PATH; Debian has it in the package prometheus")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsAreValid(t *testing.T) { promtool(t, "check", "rules", "alerts.yaml") }

func TestAlertsFireWhenTheyShould(t *testing.T) { promtool(t, "test", "rules", "alerts_test.yaml") }

// Each alert has a test in which it fires and one in which it does not.
func TestEveryAlertIsTestedBothWays(t *testing.T) {
	tests := string(committed(t, "alerts_test.yaml"))
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(committed(t, "alerts.yaml")), -1) {
		both := regexp.MustCompile(`alertname: `+m[1]+`\n +eval_time: \S+\n +exp_alerts:( \[\])?\n`).FindAllStringSubmatch(tests, -1)
		fires, silent := false, false
		for _, c := range both {
			silent = silent || c[1] != ""
			fires = fires || c[1] == ""
		}
		if !fires || !silent {
			t.Errorf("%s: tested firing %t, not firing %t", m[1], fires, silent)
		}
	}
}

// What compose.yaml mounts exists, and what is provisioned fits together.
func TestProvisioningFitsTogether(t *testing.T) {
	compose := string(committed(t, "compose.yaml"))
	for _, m := range regexp.MustCompile(`(?m)^ +- \./(\S+?):`).FindAllStringSubmatch(compose, -1) {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("compose.yaml mounts %s: %v", m[1], err)
		}
	}
	// Prometheus has the whole folder, with the rules of a plan that may be there.
	if !strings.Contains(compose, "- .:/etc/prometheus:ro\n") || !strings.Contains(compose, "--config.file=/etc/prometheus/prometheus.yaml") {
		t.Error("Prometheus does not have the folder of its configuration")
	}
	for name := range files() {
		if !strings.Contains(compose, "./"+name+":/var/lib/grafana/latency-budget/") {
			t.Errorf("compose.yaml does not mount %s", name)
		}
	}
	if provider := string(committed(t, "provisioning/dashboards/latency-budget.yaml")); !strings.Contains(provider, "path: /var/lib/grafana/latency-budget\n") {
		t.Errorf("the provider reads another folder:\n%s", provider)
	}
	sources := string(committed(t, "provisioning/datasources/prometheus.yaml"))
	to := regexp.MustCompile(`datasourceUid: (\S+)`).FindStringSubmatch(sources)
	if to == nil || !strings.Contains(sources, "    uid: "+to[1]+"\n") {
		t.Errorf("exemplars lead to a data source that is not there:\n%s", sources)
	}
	interval := regexp.MustCompile(`timeInterval: (\S+)`).FindStringSubmatch(sources)
	if interval == nil || !strings.Contains(string(committed(t, "prometheus.yaml")), "scrape_interval: "+interval[1]+"\n") {
		t.Errorf("Grafana believes in another scrape interval than Prometheus has")
	}
}

func TestThePrometheusOfComposeIsValid(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yaml")
}
