package latencybudget_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	inline   = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	makeVerb = regexp.MustCompile("`make ([a-z0-9-]+)`")
	makeRule = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

	// A document that code, a configuration or an alert sends its reader to.
	mention = regexp.MustCompile(`docs/[a-z0-9/-]+\.(?:md|schema\.json)(#[a-z0-9-]+)?`)
)

// files returns the names of all files of the repository with one of the
// extensions; what is built, and inputs of tests, are left out.
func files(t *testing.T, extensions ...string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (base == "testdata" && name != "testdata" || base == "bin" || base == "dist" || base == ".git"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		for _, e := range extensions {
			if strings.HasSuffix(name, e) {
				names = append(names, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// anchors returns what a link into a document may name: of each heading the
// words in lower case, joined by hyphens.
func anchors(t *testing.T, name string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text(t, name), ""), -1) {
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return all
}

// leads says whether a link or mention leads to a file, and to a heading where
// it names one.
func leads(t *testing.T, name, anchor string) bool {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		return false
	}
	return anchor == "" || anchors(t, name)[anchor]
}

func TestEveryLinkOfADocumentLeadsSomewhere(t *testing.T) {
	links := 0
	for _, name := range files(t, ".md") {
		prose := inline.ReplaceAllString(fenced.ReplaceAllString(text(t, name), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			if path = filepath.Join(filepath.Dir(name), path); m[1][0] == '#' {
				path = name
			}
			if !leads(t, path, anchor) {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

func TestEveryDocumentThatIsMentionedExists(t *testing.T) {
	mentions := 0
	for _, name := range files(t, ".go", ".yaml", ".json", ".md") {
		for _, m := range mention.FindAllString(text(t, name), -1) {
			mentions++
			if path, anchor, _ := strings.Cut(m, "#"); !leads(t, path, anchor) {
				t.Errorf("%s: there is no %s", name, m)
			}
		}
	}
	if mentions < 20 {
		t.Errorf("only %d mentions were found", mentions)
	}
}

func TestEveryVerbOfTheDocumentsIsInTheMakefile(t *testing.T) {
	rules := make(map[string]bool)
	for _, m := range makeRule.FindAllStringSubmatch(text(t, "Makefile"), -1) {
		rules[m[1]] = true
	}
	for _, name := range files(t, ".md", ".go", ".yaml") {
		for _, m := range makeVerb.FindAllStringSubmatch(text(t, name), -1) {
			if !rules[m[1]] {
				t.Errorf("%s: make has no verb %s", name, m[1])
			}
		}
	}
}
