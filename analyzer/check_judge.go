package analyzer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// strainedFrom is the share of the calls that may be strained before it is said.
const strainedFrom = 0.05

// judge holds one endpoint against its plan.
type judge struct {
	plan     *plan.Endpoint
	gate     *plan.Gate
	seen     *endpoint // nil where no request was measured
	observed *observed
	point    bool
	strained float64 // CheckReport.StrainedOver

	rows     []judged
	out      CheckedEndpoint
	failures []CheckFailure
}

// judged is a hop of the plan; rows[0] is the endpoint.
type judged struct {
	hop      *plan.Hop // nil for the endpoint
	parent   int
	kids     []int // in the order of the plan
	at       int   // in Profile.Hops; -1 where it was not seen
	waited   bool
	share    int64
	cap      int64 // 0 where the plan has none beside the share
	fails    bool
	below    []int64 // by row of the sample: what calls below took too long
	excess   []int64 // by row of the sample: what the caller lost by this hop; nil for nothing
	guilty   []int   // rows below, itself included, that fail by themselves
	optional bool
}

func (j *judge) endpoint(measured bool) CheckedEndpoint {
	e := j.plan
	j.out = CheckedEndpoint{
		Service: e.Service, Operation: e.Operation, Budget: int64(e.Budget), Reserve: int64(e.Reserve),
		Chain: []string{}, Gate: []CheckedGate{},
	}
	places := make(map[*plan.Hop]int)
	if j.seen != nil {
		j.out.Traces, j.out.Failed = j.seen.Traces, j.seen.Failed
		for i, h := range j.seen.hops {
			places[h] = i
		}
	}
	root := CheckedHop{
		ID: "0", Callee: e.Service, Operation: e.Operation, Label: e.Key(), Share: Some(int64(e.Budget)), Cap: Some(int64(e.Budget)),
	}
	at := -1
	if j.seen != nil {
		at = 0
	}
	j.add(root, judged{parent: -1, at: at, waited: true, share: int64(e.Budget), cap: int64(e.Budget)})
	j.addAll(e.Hops, 0, places)
	chain, sum := plan.Chain(e.Hops)
	for _, h := range chain {
		for _, k := range j.rows[0].kids {
			if j.rows[k].hop == h {
				j.out.Chain = append(j.out.Chain, j.out.Hops[k].ID)
			}
		}
	}
	j.out.ChainSum, j.out.Spare = int64(sum), int64(e.Budget-e.Reserve-sum)
	for _, k := range j.rows[0].kids {
		switch h := j.rows[k].hop; {
		case h.Async:
			j.out.Unwaited = append(j.out.Unwaited, j.out.Hops[k].ID)
			j.out.ChainUnwaited += int64(h.Share)
		case !slices.Contains(chain, h):
			j.out.Aside = append(j.out.Aside, j.out.Hops[k].ID)
		}
	}
	if j.out.ChainUnwaited > 0 {
		j.out.ChainUnwaited += j.out.ChainSum
	}
	if !measured {
		return j.out
	}
	j.measure()
	for k := len(j.rows) - 1; k >= 0; k-- { // what is below a hop comes after it
		j.judge(k)
	}
	j.gates()
	j.name()
	return j.out
}

func (j *judge) add(h CheckedHop, r judged) {
	j.out.Hops = append(j.out.Hops, h)
	j.rows = append(j.rows, r)
}

func (j *judge) addAll(hops []plan.Hop, parent int, places map[*plan.Hop]int) {
	order := plan.NewOrder(hops)
	for i := range hops {
		h := &hops[i]
		k := len(j.rows)
		up := &j.out.Hops[parent]
		row := CheckedHop{
			ID: up.ID + "." + strconv.Itoa(i+1), Parent: up.ID, Depth: up.Depth + 1,
			Callee: h.Callee, Operation: h.Operation, Label: label(h), Overlaps: overlaps(hops, order, i),
		}
		r := judged{hop: h, parent: parent, at: -1, waited: j.rows[parent].waited && !h.Async}
		if at, seen := places[h]; seen {
			r.at = at
			row.Label = j.seen.Hops[at].Label
		}
		if h.Share > 0 {
			r.share, r.cap = int64(h.Share), int64(h.Cap)
			row.Share, row.Cap = Some(r.share), Some(max(r.cap, r.share))
		}
		j.rows[parent].kids = append(j.rows[parent].kids, k)
		j.add(row, r)
		j.addAll(h.Hops, k, places)
	}
}

// label is the short name of a hop that was not seen.
func label(h *plan.Hop) string {
	if h.Stage {
		return h.Operation
	}
	return h.Key()
}

// overlaps tells whether a hop may run beside one of its siblings.
func overlaps(hops []plan.Hop, order *plan.Order, i int) bool {
	return !hops[i].Async && slices.ContainsFunc(order.Sequence, func(k int) bool {
		excluded := hops[i].Exclusive != 0 && hops[i].Exclusive == hops[k].Exclusive
		return k != i && !excluded && !order.Precedes(i, k) && !order.Precedes(k, i)
	})
}

// measure fills in what was seen, and tells which hops are over, for whatever
// reason.
func (j *judge) measure() {
	for k := range j.rows {
		r, h := &j.rows[k], &j.out.Hops[k]
		switch {
		case !r.waited:
			h.Result = CheckNoBudget
		case r.at < 0 || j.seen.p.Hops[r.at].Duration.N() == 0:
			h.Result = CheckNotSeen
		default:
			h.Result = CheckOK
		}
		if r.at < 0 {
			continue
		}
		from := &j.seen.p.Hops[r.at]
		h.Calls = from.Calls
		r.optional = k > 0 && from.Optional
		dist := from.Duration
		if r.optional {
			dist = from.Unconditional
		}
		p99 := dist.Estimate(quantile.P99, j.seen.doubt())
		if p99.N > 0 {
			h.P99, h.P99Lo, h.P99Hi = Some(p99.Value), Some(p99.Lo), Opt[int64]{p99.Hi, p99.HiKnown}
		}
		if h.Result != CheckOK || r.share == 0 {
			continue
		}
		strained := max(from.Duration.FractionAbove(int64(j.strained*float64(r.share))), j.found(r.at, from.Calls))
		h.Strained = Some(strained)
		h.Warning = k > 0 && strained > strainedFrom
		if k == 0 {
			continue // the gate says how many requests may be over
		}
		calls := from.Duration.Estimate(quantile.P99, j.seen.doubt())
		switch {
		case r.cap > 0 && j.beyond(&calls, r.cap):
			r.fails, h.Result = true, CheckOverTimeout
			h.Reason = fmt.Sprintf("P99 %s of its calls is over its TIMEOUT of %s", interval(&calls), ms(r.cap))
		case j.beyond(&p99, r.share):
			r.fails, h.Result = true, CheckOverBudget
			h.Reason = fmt.Sprintf("P99 %s is over its BUDGET of %s", interval(&p99), ms(r.share))
		}
	}
	if j.seen != nil {
		j.out.NotInPlan = j.seen.notInPlan()
		for _, f := range j.seen.Findings {
			if f.Rule == ruleStrained {
				continue // told by Strained
			}
			f.Hop = nameIn(j.seen.Hops, f.Hop)
			j.out.Findings = append(j.out.Findings, f)
		}
	}
}

// nameIn is the name of a hop for people. Where several callers have a hop of that name,
// it tells whose it is.
func nameIn(hops []Hop, id string) string {
	of := func(id string) int { return slices.IndexFunc(hops, func(h Hop) bool { return h.ID == id }) }
	at := of(id)
	if at < 0 {
		return id
	}
	h := &hops[at]
	twin := slices.ContainsFunc(hops, func(o Hop) bool { return o.ID != id && o.Label == h.Label })
	if caller := of(h.Parent); twin && caller >= 0 {
		return h.Label + " from " + hops[caller].Label
	}
	return h.Label
}

// found is the share of a hop's calls that the rule on utilization found: it also
// knows what was left of the request's budget when they began.
func (j *judge) found(at, calls int) float64 {
	if s := j.seen.Sampled; s.Known { // the rules saw the sample
		calls = calls * s.V / max(j.seen.Traces, 1)
	}
	n := 0
	for _, f := range j.seen.Findings {
		if f.Rule == ruleStrained && f.Hop == j.seen.Hops[at].ID {
			n += f.Count
		}
	}
	return min(float64(n)/float64(max(calls, 1)), 1)
}

// beyond tells whether an estimate is over a limit, with its whole interval unless
// the value alone is asked for.
func (j *judge) beyond(e *quantile.Estimate, limit int64) bool {
	if j.point {
		return e.N > 0 && e.Value > limit
	}
	return e.N > 0 && e.Lo > limit
}

// judge decides whether a hop that is over is so by itself: whether it still is
// without what the hops below it took too long, request by request. All below it
// are judged.
//
//	search   |---------------------------|         over its share, but only
//	rate        |~~~~~~~|+++++++++++|              by the + of rate
func (j *judge) judge(k int) {
	r := &j.rows[k]
	for _, c := range r.kids {
		r.guilty = append(r.guilty, j.rows[c].guilty...)
	}
	if r.at < 0 || len(r.guilty) == 0 && !r.fails {
		return
	}
	r.below = j.lost(r.kids)
	r.excess = r.below
	if !r.fails {
		return
	}
	if r.below != nil && !j.overWithout(r) {
		h := &j.out.Hops[k]
		h.Result, h.Reason = CheckByCalls, ""
		for _, g := range r.guilty {
			j.out.Hops[g].AlsoOver = append(j.out.Hops[g].AlsoOver, h.ID)
		}
		return
	}
	r.guilty = append(r.guilty, k)
	durations := j.seen.p.Rows.Duration[r.at]
	r.excess = make([]int64, len(durations))
	for i, d := range durations {
		r.excess[i] = max(0, d-r.share)
	}
}

// lost adds up what calls took too long: in sequence all of it, of those beside
// each other the longest. It is nil where nothing is.
func (j *judge) lost(kids []int) []int64 {
	hops := make([]plan.Hop, len(kids))
	for i, c := range kids {
		hops[i] = *j.rows[c].hop
	}
	order := plan.NewOrder(hops)
	var slow []int // in the order of the plan
	for _, i := range order.Sequence {
		if j.rows[kids[i]].excess != nil {
			slow = append(slow, i)
		}
	}
	if len(slow) == 0 {
		return nil
	}
	before := make([][]int, len(slow)) // indices in slow
	for n, i := range slow {
		for k, a := range slow[:n] {
			if order.Precedes(a, i) {
				before[n] = append(before[n], k)
			}
		}
	}
	ends := make([]int64, len(slow))
	total := make([]int64, len(j.rows[kids[slow[0]]].excess))
	for row := range total {
		for n, i := range slow {
			start := int64(0)
			for _, k := range before[n] {
				start = max(start, ends[k])
			}
			ends[n] = start + j.rows[kids[i]].excess[row]
			total[row] = max(total[row], ends[n])
		}
	}
	return total
}

// overWithout tells whether a hop is over its share or its cap also without what
// calls below it took too long, in the requests that were kept whole.
func (j *judge) overWithout(r *judged) bool {
	rows := j.seen.p.Rows
	var made, all quantile.Sample
	for i, d := range rows.Duration[r.at] {
		switch {
		case d < 0:
			all.Add(0, rows.Threshold[i])
		case !rows.FailedAt(r.at, i):
			made.Add(d-r.below[i], rows.Threshold[i])
			all.Add(d-r.below[i], rows.Threshold[i])
		}
	}
	calls := made.Freeze().Estimate(quantile.P99, j.seen.doubt())
	share := calls
	if r.optional {
		share = all.Freeze().Estimate(quantile.P99, j.seen.doubt())
	}
	return r.cap > 0 && j.beyond(&calls, r.cap) || j.beyond(&share, r.share)
}

// gates judges the lines of the gate.
func (j *judge) gates() {
	var o observed // of a profile file, the requests in its sample
	if j.observed != nil {
		o = *j.observed
	}
	n := float64(o.requests)
	expansions := ratioOf{o.expansions, o.requests, float64(o.expansions) / max(n, 1), n}
	if o.deadlines == 0 {
		expansions.n = 0 // not even one would show
	}
	j.ratio("expansions", j.gate.Expansions, expansions, "with a deadline that was made later or dropped")
	j.ratio("calls_after_deadline", j.gate.CallsAfterDeadline, ratioOf{o.late, o.requests, float64(o.late) / max(n, 1), n},
		"with a call after the deadline")
	j.stops(&o)
	missed := ratioOf{of: j.out.Traces}
	if j.seen != nil {
		every := j.seen.p.Every
		missed.ratio, missed.n = every.FractionAbove(j.out.Budget), every.EffN()*j.seen.p.Shrink
		missed.found = int(math.Round(missed.ratio * float64(missed.of)))
	}
	g := j.ratio("deadline_miss", j.gate.DeadlineMiss, missed, "over the budget of "+ms(j.out.Budget))
	if below := j.rows[0].below; g.Result == CheckFailed && below != nil {
		rows := j.seen.p.Rows
		var without quantile.Sample
		for i, d := range rows.Duration[0] {
			without.Add(d-below[i], rows.Threshold[i])
		}
		d := without.Freeze()
		ratio := d.FractionAbove(j.out.Budget)
		if lo, _ := wilson(ratio, d.EffN()*j.seen.p.Shrink); !j.over(ratio, lo, float64(j.gate.DeadlineMiss.Ratio)) {
			g.Result, g.Reason = CheckByCalls, ""
			j.out.Hops[0].Result = CheckByCalls
			for _, k := range j.rows[0].guilty {
				j.out.Hops[k].AlsoOver = append(j.out.Hops[k].AlsoOver, "0")
			}
		}
	}
	if g.Result == CheckFailed {
		j.out.Hops[0].Result, j.out.Hops[0].Reason = CheckOverBudget, g.Reason
	}
}

// over tells whether a ratio is over its limit.
func (j *judge) over(ratio, lo, limit float64) bool {
	if j.point {
		return ratio > limit
	}
	return lo > limit
}

// ratioOf is a ratio of requests.
type ratioOf struct {
	found, of int
	ratio     float64 // of weighted requests
	n         float64 // effective size, smaller than of where requests do not count alike
}

// ratio judges one ratio of the gate.
func (j *judge) ratio(name string, limit plan.RatioLimit, r ratioOf, what string) *CheckedGate {
	g := CheckedGate{Name: name, Result: CheckNotSeen, Count: r.found, Of: r.of}
	if r.n > 0 {
		lo, hi := wilson(r.ratio, r.n)
		g.Result, g.Ratio, g.RatioLo, g.RatioHi = CheckOK, Some(r.ratio), Some(lo), Some(hi)
		if !limit.Off && j.over(r.ratio, lo, float64(limit.Ratio)) {
			g.Result = CheckFailed
			g.Reason = fmt.Sprintf("%s of %s (95 %%: %s to %s) %s; the gate allows %s", percent(r.ratio), count(r.of, "request"),
				percent(lo), percent(hi), what, limit.Ratio)
		}
	}
	if g.LimitRatio = Some(float64(limit.Ratio)); limit.Off {
		g.Result, g.LimitRatio = CheckOff, Opt[float64]{}
	}
	j.out.Gate = append(j.out.Gate, g)
	return &j.out.Gate[len(j.out.Gate)-1]
}

// stops judges how long hops work on when nobody waits any more.
func (j *judge) stops(o *observed) {
	limit := j.gate.StopAfterCancelP99
	g := CheckedGate{Name: "stop_after_cancel_p99", Result: CheckOK, Of: o.requests, Count: o.stops.N()}
	if o.requests == 0 {
		g.Result = CheckNotSeen
	}
	if g.Count > 0 {
		e := o.stops.Freeze().Estimate(quantile.P99, quantile.EstimateOptions{})
		g.P99, g.P99Lo, g.P99Hi = Some(e.Value), Some(e.Lo), Opt[int64]{e.Hi, e.HiKnown}
		if !limit.Off && j.beyond(&e, int64(limit.Duration)) {
			g.Result = CheckFailed
			g.Reason = fmt.Sprintf("%s worked on when nobody waited any more, P99 %s; the gate allows %s",
				count(g.Count, "call"), interval(&e), ms(int64(limit.Duration)))
		}
	}
	if g.LimitNS = Some(int64(limit.Duration)); limit.Off {
		g.Result, g.LimitNS = CheckOff, Opt[int64]{}
	}
	j.out.Gate = append(j.out.Gate, g)
}

// name writes the failures: hops with what is over only by them, then the gate.
func (j *judge) name() {
	endpoint := j.plan.Key()
	label := make(map[string]string)
	for i := range j.out.Hops {
		label[j.out.Hops[i].ID] = j.out.Hops[i].Label
	}
	for i := range j.out.Hops {
		h := &j.out.Hops[i]
		if i == 0 || h.Result != CheckOverBudget && h.Result != CheckOverTimeout {
			continue
		}
		if len(h.AlsoOver) > 0 {
			above := make([]string, len(h.AlsoOver))
			for k, id := range h.AlsoOver {
				above[k] = label[id]
			}
			h.Reason += "; callers over by such calls alone: " + strings.Join(above, ", ")
		}
		j.failures = append(j.failures, CheckFailure{Endpoint: endpoint, Name: strings.TrimSpace(h.Callee + " " + h.Operation), Text: h.Reason})
	}
	for i := range j.out.Gate {
		if g := &j.out.Gate[i]; g.Result == CheckFailed {
			j.failures = append(j.failures, CheckFailure{Endpoint: endpoint, Name: g.Name, Text: g.Reason})
		}
	}
}

// wilson is the 95 % interval of a ratio seen in n requests. (E. B. Wilson,
// Probable inference, the law of succession, and statistical inference, 1927.)
func wilson(ratio, n float64) (lo, hi float64) {
	if n <= 0 {
		return 0, 1
	}
	const z = 1.959963984540054 // 97.5 % of a normal distribution lie below
	center := ratio + z*z/(2*n)
	spread := z * math.Sqrt(ratio*(1-ratio)/n+z*z/(4*n*n))
	lo, hi = (center-spread)/(1+z*z/n), (center+spread)/(1+z*z/n)
	if ratio == 0 { // exact; rounding may leave a trace
		lo = 0
	}
	return max(lo, 0), min(hi, 1)
}

// ms writes a time in ms.
func ms(ns int64) string {
	digits := -1
	if ns%int64(time.Microsecond) != 0 || ns >= 10*int64(time.Second) {
		digits = 3
	}
	return strconv.FormatFloat(float64(ns)/1e6, 'f', digits, 64) + " ms"
}

// about writes a measured time in ms, with three digits.
func about(ns int64) string {
	digits := 0
	switch {
	case ns < 995_000:
		digits = 3
	case ns < 9_950_000:
		digits = 2
	case ns < 99_500_000:
		digits = 1
	}
	return strconv.FormatFloat(float64(ns)/1e6, 'f', digits, 64)
}

// interval writes a quantile with its interval.
func interval(e *quantile.Estimate) string {
	hi := "unknown"
	if e.HiKnown {
		hi = about(e.Hi)
	}
	return fmt.Sprintf("%s ms (95 %%: %s to %s)", about(e.Value), about(e.Lo), hi)
}

func percent(ratio float64) string { return strconv.FormatFloat(100*ratio, 'g', 3, 64) + " %" }
