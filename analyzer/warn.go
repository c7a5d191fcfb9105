package analyzer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// manyFalseCuts is the share of good requests that strict budgets may cut before the
// report says how to look for better ones.
const manyFalseCuts = 0.05

// warn lists what the reader of the table should know, the gravest first.
func (e *endpoint) warn(a *analysis, low bool) {
	say := func(format string, args ...any) { e.Warnings = append(e.Warnings, fmt.Sprintf(format, args...)) }
	if slices.Contains(e.Hops[0].Flags, "censored") {
		say("today's timeouts cut %.3g %% of the requests: what they would take is not in the data", 100*e.Hops[0].CensoredRatio)
	}
	if e.Sampled.Known {
		say("counts and call durations are those of all %d requests, durations within %.1f %%; all else is from a sample of %d",
			e.Traces, 100*quantile.ErrorBound, e.Sampled.V)
	}
	if n := e.p.Unsampled; n > 0 {
		say("%s of operations that are not in the sample have no row", count(n, "call"))
	}
	if e.Traces < 100 {
		say("only %s: every figure is a first look, no recommendation", count(e.Traces, "request"))
	} else if low {
		say("the suggested budget rests on %d requests: take it as a first guess", e.Traces)
	}
	if e.BudgetSource == sourceObserved && e.p.LimitDisagrees {
		say("entry spans carry different latency_budget.limit values: the most frequent is used")
	}
	for _, w := range e.solution.Warnings {
		say("%s: %s", e.Hops[w.Hop].Label, w.Text)
	}
	if e.Strategy == (budget.CriticalPath{}).Name() {
		say("%s", e.neverRecommended())
	}
	if r := e.Replay; r != nil && r.BudgetFalseCut.Known && r.BudgetFalseCut.V > manyFalseCuts && e.Feasible &&
		e.Traces >= budget.OptimisedFrom && !e.p.Clustered && e.Strategy == budget.Strategies[0].Name() {
		say("BUDGET would cut %.2g %% of good requests: --strategy optimised looks for the split that cuts the fewest",
			100*r.BudgetFalseCut.V)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		if h.AttemptsFit.Known && h.AttemptsFit.V < h.MaxAttempts {
			attempts := time.Duration(h.MaxAttempts)
			timeout, pause := time.Duration(h.AttemptTimeout.V), time.Duration(h.BackoffP99.V)
			say("%s: do not configure %d attempts, as were seen: at %v each, with pauses of %v, they take %v of its BUDGET of %v, which holds %d",
				h.Label, h.MaxAttempts, round(timeout), round(pause), round(attempts*timeout+(attempts-1)*pause),
				time.Duration(h.Share.V), h.AttemptsFit.V)
		}
	}
	if n := len(e.config.Incidents) + len(e.config.Degradable); n > 0 && e.Replay == nil {
		say("nothing is replayed, incidents included: no request succeeded")
	}
	if e.Failed == e.Traces {
		say("all %s failed: there is nothing to plan from", count(e.Traces, "request"))
		return
	}
	for i := range e.Hops {
		if e.p.Hops[i].Streamed && e.Hops[i].Kind != HopAsync {
			say("%s: some calls are streams: how long one is open is no latency, so figures, budget and misses say little", e.Hops[i].Label)
		}
	}
	var failed []string
	for i := range e.Hops {
		if n := e.p.Hops[i].Failed; n > 0 {
			failed = append(failed, fmt.Sprintf("%s %d", e.Hops[i].Label, n))
		}
	}
	for i := range e.Hops {
		if h := &e.Hops[i]; planned(h) && h.Calls > 0 && e.p.Hops[i].Duration.N() == 0 {
			say("%s: no call succeeded, so it has no budget", h.Label)
		}
	}
	if len(failed) > 0 {
		say("failed calls are left out of the durations: %s", strings.Join(failed, ", "))
	}
	for i := range e.Hops {
		if n := e.p.Hops[i].Unanswered; n > 0 {
			say("%s: %d of its calls have no SERVER span: those that hung may be missing elsewhere too", e.Hops[i].Label, n)
		}
	}
	for i := range e.Hops {
		if n := e.p.Hops[i].Unfitted; n > 0 {
			say("%s: %s longer at the callee than at the caller: not fitted", e.Hops[i].Label, count(n, "call"))
		}
	}
	for i := range e.Hops {
		if h := &e.p.Hops[i]; h.TimedAsync && h.ServerOnly {
			say("%s: counted as asynchronous by its times alone, which are from another clock; CLIENT spans would tell", e.Hops[i].Label)
		}
	}
	if name := map[int64]string{1e6: "1 ms", 1e7: "10 ms", 1e9: "1 s"}[e.Resolution]; name != "" {
		say("coarse clock (%s)", name)
	}
	if e.p.Clustered {
		say("clustered: slow requests come in runs, so %d requests tell as much as %.0f independent ones",
			e.Traces, float64(e.Traces)*e.p.Shrink)
	}
	key := e.key()
	if n := a.rules.Folded(key); n > 0 {
		say("%d operations over --max-hops are folded into %q", n, profile.OtherOperation)
	}
	if n := a.inferred[key]; n.Without > 0 {
		e.KindInferredRatio = float64(n.Without) / float64(n.Spans)
		say("kind inferred for %.0f %% of spans", max(1, 100*e.KindInferredRatio))
	}
	for _, s := range a.rules.Shifts() {
		if slices.ContainsFunc(e.Hops, func(h Hop) bool {
			return h.Skew.Known && h.Caller == s.Caller && h.Callee == s.Callee
		}) {
			say("%s", s)
		}
	}
}

// neverRecommended says what the critical path is good for, and what its shares
// would do beside those of the default.
func (e *endpoint) neverRecommended() string {
	text := "critpath shows where slow requests wait; it starves hops that are seldom slow and is no recommendation"
	if e.Replay == nil || !e.Replay.BudgetFalseCut.Known {
		return text
	}
	cuts := make(map[string]float64)
	for i := range e.Replay.Policies {
		if p := &e.Replay.Policies[i]; p.Policy == string(budget.PolicyShares) {
			cuts[p.Strategy] = 100 * p.FalseCut
		}
	}
	standard := budget.Strategies[0].Name()
	return fmt.Sprintf("%s: its BUDGETs as timeouts would cut %.2g %% of the good requests, those of %s %.2g %%",
		text, cuts[e.Strategy], standard, cuts[standard])
}

// round shortens a time for people, to a thousandth of it.
func round(d time.Duration) time.Duration {
	step := time.Duration(1)
	for d/step >= 1000 {
		step *= 10
	}
	return d.Round(step)
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
