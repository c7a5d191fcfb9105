package analyzer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// ErrNothingUsable is returned (wrapped) where the sources hold no request that
// can be analysed.
var ErrNothingUsable = errors.New("no request to analyse")

// ErrConfig is returned (wrapped) for a Config that cannot be used: a value out
// of range, or a pattern that names no hop, or several.
var ErrConfig = errors.New("bad configuration")

// configError keeps its text and is an ErrConfig.
type configError struct{ error }

func (e configError) Unwrap() error        { return e.error }
func (e configError) Is(target error) bool { return target == ErrConfig }

// Analyze reads the sources to their ends, profiles the endpoints and splits
// their budgets. The report depends on the spans alone: not on their order, the
// split over files or sources, nor on how they were read in parallel.
//
// Inputs that cannot be used are in Report.Input.Failed, next to a report of
// the others. The error is for what stops the analysis: a bad Config, a pattern
// that names no hop or several, no usable request at all, or the end of ctx.
// Then the report is nil.
func Analyze(ctx context.Context, c Config, sources ...trace.Source) (*Report, error) {
	if err := c.validate(); err != nil {
		return nil, configError{err}
	}
	a := newAnalysis(c)
	if err := a.profile(ctx, sources); err != nil {
		return nil, err
	}
	if err := a.split(); err != nil {
		return nil, configError{err}
	}
	a.finish()
	if err := a.makePlan(); err != nil {
		return nil, err
	}
	return a.report, nil
}

// analysis is one run on its way from spans to the report.
type analysis struct {
	config   Config
	report   *Report
	builder  *trace.Builder
	file     *profile.File // of what was read, where its sample is not all; else nil
	notes    trace.Notes
	evidence *profile.Survey
	rules    *profile.Rules
	shown    []profile.Count // endpoints that get a table
	profiles []*profile.Profile
	leftOut  map[trace.NoteKind]int
	asked    []func(*trace.Desc) bool // one for each of Config.Endpoints
	inferred map[profile.Endpoint]profile.Inferred
	restarts finding.Restarts
	found    map[profile.Endpoint]*finding.Tally
	allowed  *finding.Allowed                        // Config.AllowDetached
	index    *plan.Index                             // of Config.Plan; nil for none
	plans    []plan.Endpoint                         // of the endpoints with a split
	planOnly bool                                    // other endpoints than those of the plan do not matter
	gates    map[profile.Endpoint]*observed          // nil unless there is a gate
	place    func(e profile.Endpoint, hop int32) int // of a hop that was found, in Profile.Hops
}

func newAnalysis(c Config) *analysis {
	a := &analysis{config: c, report: &Report{Version: 1, Settings: c.changed()}, allowed: finding.NewAllowed(c.AllowDetached)}
	a.restarts.Allowed = a.allowed
	for _, glob := range c.Endpoints {
		a.asked = append(a.asked, asking(glob))
	}
	return a
}

// profile reads the sources and profiles the endpoints.
func (a *analysis) profile(ctx context.Context, sources []trace.Source) error {
	files, err := a.read(ctx, sources)
	if err != nil {
		return err
	}
	in := &a.report.Input
	if len(files) > 0 {
		a.use(a.merge(files, 0))
	} else {
		a.notes.Merge(a.builder.Seal())
		in.Spans, in.Traces = a.builder.Spans(), a.builder.Len()
	}
	if in.Spans == 0 {
		return a.nothing("no spans were read")
	}
	if err := a.survey(ctx); err != nil {
		return err
	}
	return a.collect(ctx)
}

// read reads the sources: spans into the builder, and the profiles among them.
func (a *analysis) read(ctx context.Context, sources []trace.Source) (files []*profile.File, err error) {
	a.builder = trace.NewBuilder()
	in := &a.report.Input
	for _, source := range sources {
		var file *trace.File
		var spans int
		flush := func() {
			if file != nil {
				in.Files = append(in.Files, InputFile{Name: file.Name, Format: file.Format, Bytes: file.Bytes, Spans: spans})
			}
			file, spans = nil, 0
		}
		for batch, err := range source.Batches(ctx) {
			if err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				in.Failed = append(in.Failed, err)
				continue
			}
			held := len(batch.Spans)
			if batch.Profile != nil {
				f, err := profile.DecodeFile(batch.Profile)
				if err != nil {
					in.Failed = append(in.Failed, fmt.Errorf("%s: %w", batch.File.Name, err))
					continue
				}
				files = append(files, f)
				held = f.Spans()
			}
			if batch.File != file {
				flush()
				file = batch.File
			}
			spans += held
			a.notes.Merge(batch.Notes)
			a.restarts.Collect(batch.Spans)
			a.builder.Add(batch.Spans)
		}
		flush()
	}
	return files, ctx.Err()
}

// merge makes one profile of those that were read and of the traces beside them. It
// keeps sample traces of each endpoint, but not more than any of those did; 0
// stands for as many as they did.
func (a *analysis) merge(files []*profile.File, sample int) *profile.File {
	o := profile.FileOptions{Sample: sample, MaxTraceSpans: a.config.MaxTraceSpans}
	for _, f := range files {
		if o.Sample == 0 || f.Sample() < o.Sample {
			o.Sample = f.Sample()
		}
	}
	sealed := a.builder.Seal()
	f, tooBig := profile.NewFile(a.builder, a.notes, sealed, o)
	if len(files) > 0 {
		var more []error
		f, more = profile.MergeFiles(append(files, f), o)
		tooBig = append(tooBig, more...)
	}
	a.fail(tooBig)
	return f
}

// use has the sample of a profile analysed, and its counts wherever they are of
// more.
func (a *analysis) use(f *profile.File) {
	in := &a.report.Input
	in.Spans, in.Traces = f.Spans(), f.Traces()
	spans := f.Sampled()
	a.restarts = finding.Restarts{Allowed: a.allowed}
	a.restarts.Collect(spans)
	a.builder = trace.NewBuilder()
	a.builder.Add(spans)
	sealed := a.builder.Seal()
	a.notes = trace.Notes{}
	a.notes.Merge(f.Read())
	if f.Whole() {
		a.notes.Merge(sealed)
		return
	}
	a.file = f
	a.notes.Merge(f.Assembled())
}

// nothing returns ErrNothingUsable with what is known of the reason.
func (a *analysis) nothing(why string) error {
	if failed := a.report.Input.Failed; len(failed) > 0 && a.report.Input.Spans == 0 {
		return nothingUsable{errors.Join(failed...)} // they say why
	}
	return errors.Join(append(slices.Clone(a.report.Input.Failed), fmt.Errorf("%w: %s", ErrNothingUsable, why))...)
}

// nothingUsable keeps its text and is an ErrNothingUsable.
type nothingUsable struct{ error }

func (e nothingUsable) Unwrap() error        { return e.error }
func (e nothingUsable) Is(target error) bool { return target == ErrNothingUsable }

// each assembles every trace and calls visit with its entries.
func (a *analysis) each(ctx context.Context, visit func(t *trace.Trace, entries []int32)) error {
	var t trace.Trace
	var tooBig []error
	maxSpans := cmp.Or(a.config.MaxTraceSpans, trace.DefaultMaxTraceSpans)
	for i := range a.builder.Len() {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.builder.Assemble(i, maxSpans, &t); err != nil && a.rules == nil {
			tooBig = append(tooBig, err)
		}
		entries := t.Entries()
		switch {
		case a.file != nil:
			entries = slices.DeleteFunc(entries, func(e int32) bool {
				d := t.Spans[e].Desc
				return !a.selects(d) || !a.file.Samples(t.ID, profile.EndpointOf(d))
			})
		case a.planOnly && slices.ContainsFunc(entries, func(e int32) bool { return a.selects(t.Spans[e].Desc) }):
			// An endpoint is looked for below the entries only where none of them is one.
		case len(a.asked) > 0:
			entries = t.Select(entries, a.asked...)
		}
		visit(&t, entries)
	}
	a.fail(tooBig)
	return nil
}

// selects tells whether the user asked for an entry. Of a profile that is more than
// its sample nothing else can be asked for: operations below the entries were
// sampled by the entry.
func (a *analysis) selects(d *trace.Desc) bool {
	return len(a.asked) == 0 || slices.ContainsFunc(a.asked, func(match func(*trace.Desc) bool) bool { return match(d) })
}

// fail notes the traces that are too big.
func (a *analysis) fail(tooBig []error) {
	switch n := len(tooBig); n {
	case 0:
	case 1:
		a.report.Input.Failed = append(a.report.Input.Failed, tooBig[0])
	default:
		a.report.Input.Failed = append(a.report.Input.Failed, fmt.Errorf("%d traces are too big; the first: %w", n, tooBig[0]))
	}
}

// asking returns the test for one of Config.Endpoints. It is asked of every
// span, and descriptions are few: the answers are kept.
func asking(glob string) func(*trace.Desc) bool {
	answers := make(map[*trace.Desc]bool)
	return func(d *trace.Desc) bool {
		yes, known := answers[d]
		if !known {
			yes = trace.Match(glob, profile.EndpointOf(d).String())
			answers[d] = yes
		}
		return yes
	}
}

// survey is the first pass: evidence on structure, and the account of spans.
func (a *analysis) survey(ctx context.Context) error {
	a.evidence = profile.NewSurvey()
	a.leftOut = make(map[trace.NoteKind]int)
	a.inferred = make(map[profile.Endpoint]profile.Inferred)
	names := make(map[string]bool) // endpoints there are, for the message
	err := a.each(ctx, func(t *trace.Trace, entries []int32) {
		a.restarts.Cover(t.Spans)
		usable := false
		for _, e := range entries {
			if !a.evidence.Add(t, e) {
				continue
			}
			usable = true
			key := profile.EndpointOf(t.Spans[e].Desc)
			n := a.inferred[key]
			n.Spans += len(t.Spans)
			n.Without += t.InferredKinds
			a.inferred[key] = n
		}
		if usable { // what is left out must not decide how the others count
			a.evidence.AddTrace(t)
		}
		if len(entries) == 0 && len(t.Spans) > 0 && len(names) < 1000 {
			for i := range t.Spans {
				if d := t.Spans[i].Desc; t.Parent[i] == trace.NoParent {
					names[strconv.Quote(profile.EndpointOf(d).String())] = true
				}
			}
		}
		if a.file == nil {
			a.notes.Merge(t.Notes)
			for kind, n := range t.LeftOut {
				a.leftOut[kind] += n
			}
		}
	})
	if err != nil {
		return err
	}
	if a.file != nil {
		a.evidence.Widen(a.file)
		a.leftOut = a.file.LeftOut()
		for key := range a.inferred {
			a.inferred[key] = a.file.Inferred(key)
		}
	}
	all := a.evidence.Endpoints()
	if a.planOnly && !slices.ContainsFunc(all, func(e profile.Count) bool { return a.config.planned(e.Endpoint) != nil }) {
		for _, e := range all {
			names[strconv.Quote(e.String())] = true
		}
		return a.noneOfThePlan(slices.Sorted(maps.Keys(names)))
	}
	if len(all) == 0 {
		if len(a.config.Endpoints) > 0 {
			return a.nothing(fmt.Sprintf("no operation matches --endpoint %s; there are %s",
				strings.Join(a.config.Endpoints, ", "), enumerate(slices.Sorted(maps.Keys(names)), 5)))
		}
		return a.nothing("no trace has a root or an entry that can be measured: " + a.reasons())
	}
	top := min(len(all), cmp.Or(a.config.Top, DefaultTop))
	for i, e := range all {
		named := func(b EndpointBudget) bool { return b.Endpoint != "" && b.names(e.Endpoint) }
		if i < top && !a.planOnly || slices.ContainsFunc(a.config.Budgets, named) || a.config.planned(e.Endpoint) != nil {
			a.shown = append(a.shown, e)
			continue
		}
		a.report.Others = append(a.report.Others, OtherEndpoint{Service: e.Service, Operation: e.Operation, Traces: e.Requests})
	}
	return nil
}

// reasons lists why spans were left out.
func (a *analysis) reasons() string {
	kinds := make([]string, 0, len(a.leftOut))
	for kind, n := range a.leftOut {
		kinds = append(kinds, noteText(kind, n))
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}

// collect is the second pass: it measures the shown endpoints, checks the requests
// of all by the rules of package finding, and accounts for every span.
func (a *analysis) collect(ctx context.Context) error {
	a.rules = a.evidence.Decide(profile.Options{
		MaxHops: a.config.MaxHops, Sample: a.config.Sample,
		Steps: a.config.Steps, Unweighted: a.config.Unweighted,
	})
	shown := make(map[profile.Endpoint]bool, len(a.shown))
	for _, e := range a.shown {
		shown[e.Endpoint] = true
	}
	collector := profile.NewCollector(a.rules)
	if a.config.Plan != nil {
		a.index = plan.NewIndex(a.config.Plan)
	}
	a.found = make(map[profile.Endpoint]*finding.Tally)
	a.place = collector.Place
	collector.Observe = func(r profile.Request) {
		tally := a.found[r.Endpoint]
		if tally == nil {
			tally = new(finding.Tally)
			a.found[r.Endpoint] = tally
		}
		request := a.request(r)
		tally.Add(request, r.Hop)
		if a.gates != nil {
			seen := a.gates[r.Endpoint]
			if seen == nil {
				seen = new(observed)
				a.gates[r.Endpoint] = seen
			}
			seen.add(request)
		}
	}
	var account account
	err := a.each(ctx, func(t *trace.Trace, entries []int32) {
		_, weighed := a.rules.Threshold(t)
		if !weighed && len(entries) > 0 && a.file == nil {
			a.notes.Add(profile.NoteNoThreshold, 1, t.ID.String(), "")
		}
		reached := t.Reach(entries...)
		if !weighed {
			account.without += reached
			return
		}
		measured := entries[:0]
		for _, e := range entries {
			if t.Spans[e].Is(trace.FlagUnmeasured) {
				if a.file == nil {
					a.notes.Add(noteUnmeasuredEntry, 1, t.ID.String()+"/"+t.Spans[e].ID.String(), "")
				}
				continue
			}
			measured = append(measured, e)
			if shown[profile.EndpointOf(t.Spans[e].Desc)] {
				collector.Add(t, e)
			} else if !a.planOnly {
				collector.Look(t, e)
			}
		}
		n := t.Reach(measured...)
		account.analysed += n
		account.unmeasured += reached - n
	})
	if err != nil {
		return err
	}
	if a.file != nil {
		collector.Widen(a.file)
		account = a.count()
	}
	a.report.Input.Analysed = account.analysed
	a.leftOut[profile.NoteNoThreshold] += account.without
	a.leftOut[noteUnmeasuredEntry] += account.unmeasured
	a.profiles = collector.Resolve()
	if len(a.profiles) == 0 {
		return a.nothing("no trace can be weighed: every one lacks a readable sampling threshold; --unweighted takes all alike")
	}
	return nil
}

// account says what became of the spans at and below entries.
type account struct{ analysed, without, unmeasured int }

// count accounts for all spans of the profile, in the sample or not.
func (a *analysis) count() account {
	var out account
	notes := make(map[trace.NoteKind]int)
	a.file.Census(func(e profile.Endpoint, s trace.Sampling, c profile.Census) {
		spans := c.Spans + c.UnmeasuredSpans
		switch {
		case !a.selects(&trace.Desc{Service: e.Service, Operation: e.Operation}):
			a.leftOut[trace.NoteNotSelected] += spans
			notes[trace.NoteNotSelected] += spans
		case !a.rules.Counts(s):
			out.without += spans
			notes[profile.NoteNoThreshold] += c.Requests + c.Unmeasured
		default:
			out.analysed += c.Spans
			out.unmeasured += c.UnmeasuredSpans
			notes[noteUnmeasuredEntry] += c.Unmeasured
		}
	})
	for kind, n := range notes {
		a.notes.Add(kind, n, "", "")
	}
	return out
}

// finish writes what is known of the input and of the endpoints without a table.
func (a *analysis) finish() {
	for i := range a.report.Others {
		o := &a.report.Others[i]
		o.Findings = a.otherFindings(profile.Endpoint{Service: o.Service, Operation: o.Operation})
	}
	in := &a.report.Input
	for kind, n := range a.leftOut {
		if n > 0 {
			if in.LeftOut == nil {
				in.LeftOut = make(map[string]int)
			}
			in.LeftOut[string(kind)] = n
		}
	}
	a.note()
	in.Sampling = a.sampling()
	in.AllowedNothing = a.allowed.Unused()
}

// note writes the notes on the input.
func (a *analysis) note() {
	in := &a.report.Input
	for _, n := range a.notes.List() {
		in.Notes = append(in.Notes, InputNote{
			Kind: string(n.Kind), Count: n.Count, Example: n.Example,
			Text: noteText(n.Kind, n.Count), Where: n.Where, Lost: lost[n.Kind],
		})
	}
}

// sampling says how the traces stand for all requests.
func (a *analysis) sampling() Sampling {
	s := a.evidence.Sampling()
	out := Sampling{Weighted: a.rules.Weighted()}
	switch {
	case out.Weighted:
		out.Note = "Traces count by their sampling threshold (ot=th)."
		if without := s.Traces - s.Weighted; without > 0 {
			out.Note += fmt.Sprintf(" %d of %d have none and are left out; --unweighted takes all alike.", without, s.Traces)
		}
	case a.config.Unweighted && s.Weighted > 0:
		out.Note = "Sampling thresholds (ot=th) were ignored: every trace counts once."
	default:
		out.Note = "No sampling threshold (ot=th) is recorded, so every trace counts once."
	}
	switch {
	case s.TailSampled > 0:
		out.Biased = true
		out.Note += fmt.Sprintf(" A tail sampler chose %d of %d traces: the set is biased, and so is every figure.", s.TailSampled, s.Traces)
	case a.allSlowOrFailed():
		out.Biased = true
		out.Note += " Every trace is slow or failed: the set is biased, and so is every figure."
	}
	return out
}

// allSlowOrFailed tells whether every request shown failed or was over its
// budget: no probability sample of a working service looks like that.
func (a *analysis) allSlowOrFailed() bool {
	for i, p := range a.profiles {
		root := &p.Hops[0]
		slow := root.Duration.CensoredRatio() // cut by a timeout: neither done nor in time
		if a.report.Endpoints[i].BudgetSource != sourceSuggested {
			slow = max(slow, root.Duration.FractionAbove(a.report.Endpoints[i].Budget))
		}
		if math.Round(slow*float64(root.Duration.N()))+float64(root.Failed) < float64(p.Requests) {
			return false
		}
	}
	return true
}
