package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units as Grafana names them.
const (
	seconds = "s"
	share   = "percentunit" // 0 to 1, shown in percent
	number  = "short"
)

// minInterval keeps $__rate_interval over two scrapes a minute apart, also where
// the data source believes in 15 s.
const minInterval = "2m"

// source is the data source that the reader chooses, in every panel and variable:
// a fixed one would exist in one Grafana only.
func source() common.DataSourceRef {
	kind, uid := "prometheus", "${datasource}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

// query is one query of a panel.
type query struct {
	expr    string
	legend  string
	last    bool // its last value alone
	instant bool // the same as a table
	heat    bool // buckets of a heat map
}

func (q query) target(ref string) cog.Builder[variants.Dataquery] {
	b := prometheus.NewDataqueryBuilder().RefId(ref).Datasource(source()).Expr(q.expr).LegendFormat(q.legend)
	switch {
	case q.last:
		return b.Instant()
	case q.instant:
		return b.Instant().Format(prometheus.PromQueryFormatTable)
	case q.heat:
		return b.Range().Format(prometheus.PromQueryFormatHeatmap)
	}
	return b.Range().Exemplar(q.legend == exemplified)
}

// exemplified is the legend of the query that shows exemplars: one in a panel is
// enough.
const exemplified = "P99"

func targets(queries []query) []cog.Builder[variants.Dataquery] {
	list := make([]cog.Builder[variants.Dataquery], len(queries))
	for i, q := range queries {
		list[i] = q.target(string(rune('A' + i)))
	}
	return list
}

// edges colours values by the two edges of a utilization: 0.8 is where a hop is
// flagged, 1 where its budget is spent.
func edges() *dashboard.ThresholdsConfigBuilder {
	near, over := 0.8, 1.0
	return dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps([]dashboard.Threshold{
			{Color: "green"},
			{Value: &near, Color: "orange"},
			{Value: &over, Color: "red"},
		})
}

// anyIsBad colours everything over 0.
func anyIsBad() *dashboard.ThresholdsConfigBuilder {
	one := 1e-9
	return dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps([]dashboard.Threshold{{Color: "green"}, {Value: &one, Color: "red"}})
}

// Sizes of panels on Grafana's grid of 24 columns.
const (
	third, half, full = 8, 12, 24
	tall              = 8
	low               = 5
)

// lines draws values over time.
func lines(title, description, unit string, width uint32, queries ...query) *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).
		Span(width).Height(tall).Interval(minInterval).
		Unit(unit).AxisSoftMin(0).
		LineWidth(2).FillOpacity(5).ShowPoints(common.VisibilityModeAuto).SpanNulls(common.BoolOrFloat64{Bool: cog.ToPtr(false)}).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().
			DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).
			ShowLegend(true).Calcs([]string{"lastNotNull", "max"})).
		NoValue("none").
		Targets(targets(queries))
}

// marked adds the edges of a utilization as lines.
func marked(p *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return p.Thresholds(edges()).
		ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
}

// figure shows one number.
func figure(title, description, unit string, thresholds *dashboard.ThresholdsConfigBuilder, queries ...query) *stat.PanelBuilder {
	return stat.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).
		Span(third).Height(low).Interval(minInterval).
		Unit(unit).Thresholds(thresholds).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		NoValue("none").
		Targets(targets(queries))
}

// bars shows the last value of each series as a bar, coloured by the edges.
func bars(title, description, unit string, width uint32, q query) *bargauge.PanelBuilder {
	q.last = true // topk picks anew at every step of a range
	return bargauge.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).
		Span(width).Height(tall).Interval(minInterval).
		Unit(unit).Min(0).Thresholds(edges()).
		Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		NoValue("none").
		Targets(targets([]query{q}))
}

// rows is a table of hops, with a link to the details of each.
func rows(title, description, unit, value string, width uint32, q query) *table.PanelBuilder {
	q.instant = true
	return table.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).
		Span(width).Height(tall).Interval(minInterval).
		NoValue("none").
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})).
		Transformations([]dashboard.DataTransformerConfig{{
			Id: "organize",
			Options: map[string]any{
				"excludeByName": map[string]any{"Time": true},
				"indexByName":   map[string]any{flag: 0, caller: 1, callee: 2, operation: 3, "Value": 4},
				"renameByName":  map[string]any{flag: "flag", caller: "caller", callee: "callee", operation: "operation", "Value": value},
			},
		}}).
		OverrideByName(value, []dashboard.DynamicConfigValue{{Id: "unit", Value: unit}, {Id: "decimals", Value: 1}}).
		OverrideByName("operation", []dashboard.DynamicConfigValue{{Id: "links", Value: []any{map[string]any{
			"title": "Hop detail",
			"url": "/d/" + hopUID + "?var-datasource=${datasource}&var-service=${__data.fields.callee:percentencode}" +
				"&var-hop=${__data.fields.operation:percentencode}&${__url_time_range}",
		}}}}).
		Targets(targets([]query{q}))
}

// heat is a heat map of a histogram.
func heat(title, description, unit string, width uint32, q query) *heatmap.PanelBuilder {
	q.heat = true
	return heatmap.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).
		Span(width).Height(tall).Interval(minInterval).
		Calculate(false).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(unit)).
		Color(heatmap.NewHeatmapColorOptionsBuilder().
			Mode(heatmap.HeatmapColorModeScheme).Scheme("Oranges").Steps(64).Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5)).
		CellGap(1).ShowValue(common.VisibilityModeNever).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle).YHistogram(true)).
		NoValue("none").
		Targets(targets([]query{q}))
}

// chooser is a variable with the values of a label. All of them are not the empty
// one, which spans have that the processor did not judge.
func chooser(name, title, description, values string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(title).Description(description).Datasource(source()).
		Query(dashboard.StringOrMap{String: &values}).Definition(values).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).AllValue(".+").
		Current(dashboard.VariableOption{
			Selected: cog.ToPtr(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

// page is a dashboard with the variables of both.
func page(title, uid, description string, variables ...*dashboard.QueryVariableBuilder) *dashboard.DashboardBuilder {
	b := dashboard.NewDashboardBuilder(title).
		Uid(uid).Description(description).
		Tags([]string{"latencybudget"}).
		Editable().Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").Refresh("1m").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").Description("A Prometheus that scrapes the Collector.").Type("prometheus"))
	for _, v := range variables {
		b = b.WithVariable(v)
	}
	return b
}

// link is one to another dashboard that keeps what is chosen.
func link(title, uid string) *dashboard.DashboardLinkBuilder {
	return dashboard.NewDashboardLinkBuilder(title).
		Type(dashboard.DashboardLinkTypeLink).Url("/d/" + uid).Icon("dashboard").
		Tooltip(title).IncludeVars(true).KeepTime(true)
}
