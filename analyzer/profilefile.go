package analyzer

import (
	"context"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Profile reads the sources to their ends, profiles among them, and makes one
// profile of all that can be analysed in their place. Of the Config only
// MaxTraceSpans counts, and Sample: the whole traces to keep of each endpoint; 0
// stands for profile.DefaultFileSample, or for what the profiles among the sources
// keep. More than those keep cannot be had.
//
// The Input says what was read and what could not be used, each file by its name.
// The error is for what stops the reading: a bad Config, nothing to read at all, or
// the end of ctx.
func Profile(ctx context.Context, c Config, sources ...trace.Source) (*profile.File, *Input, error) {
	if err := c.validate(); err != nil {
		return nil, nil, configError{err}
	}
	a := newAnalysis(c)
	files, err := a.read(ctx, sources)
	if err != nil {
		return nil, nil, err
	}
	f := a.merge(files, c.Sample)
	in := &a.report.Input
	in.Spans, in.Traces = f.Spans(), f.Traces()
	if in.Spans == 0 {
		return nil, nil, a.nothing("no spans were read")
	}
	a.notes = f.Read()
	a.note()
	return f, in, nil
}
