package latencybudgetprocessor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// counting is a consumer that only counts.
type counting struct{ spans atomic.Int64 }

func (c *counting) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (c *counting) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	c.spans.Add(int64(traces.SpanCount()))
	return nil
}

// TestSoak runs the processor at full speed for as long as LATENCYBUDGET_SOAK says,
// such as 60s. Every batch has trace ids and some operations that were never there
// before, as services that put ids into names make them, and the plan changes all the
// time. As many spans must come out as went in, and memory must not grow.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("LATENCYBUDGET_SOAK"))
	if err != nil {
		t.Skip("LATENCYBUDGET_SOAK is no duration, such as 60s: see `make soak`")
	}
	plan, err := os.ReadFile(filepath.Join("testdata", "plan.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := defaults()
	config.BudgetsFile = filepath.Join(t.TempDir(), "plan.yaml")
	config.FlaggedEvent = true
	write(t, config.BudgetsFile, string(plan))
	out := new(counting)
	p := start(t, config, out)

	var in atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			kinds := []ptrace.Traces{
				drawnBatch(t, 64, 0), drawnBatch(t, 64, 100e9), drawnBatch(t, 64, 30e6), allStories(t),
			}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				batch := ptrace.NewTraces()
				kinds[n%len(kinds)].CopyTo(batch)
				renew(rng, batch)
				in.Add(int64(batch.SpanCount()))
				if err := p.ConsumeTraces(context.Background(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	heap := func() uint64 {
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return mem.HeapAlloc
	}
	const steps = 12
	var after []uint64
	for i := range steps {
		time.Sleep(length / steps)
		write(t, config.BudgetsFile, fmt.Sprintf("%s# %d\n", plan, i))
		after = append(after, heap())
	}
	close(stop)
	wg.Wait()
	if in.Load() != out.spans.Load() {
		t.Errorf("%d spans went in, %d came out", in.Load(), out.spans.Load())
	}
	// What is bounded fills up and is given up now and then, and two batches may be in
	// work at any time.
	const slack = 16 << 20
	if early, late := slices.Max(after[:2*steps/3]), slices.Max(after[2*steps/3:]); late > early+early/4+slack {
		t.Errorf("the heap grew from at most %d to %d bytes: %v", early, late, after)
	}
	for i := range after {
		after[i] >>= 20
	}
	t.Logf("%d spans in and out, %.0f a second, making of batches included; heap in MB: %v",
		in.Load(), float64(in.Load())/length.Seconds(), after)
}

// renew gives the traces of a batch new ids, and every 50th span a new name.
func renew(rng *rand.Rand, batch ptrace.Traces) {
	ids := make(map[pcommon.TraceID]pcommon.TraceID)
	for i, s := range eachSpan(batch) {
		id, known := ids[s.TraceID()]
		if !known {
			for b := range id {
				id[b] = byte(rng.Uint32())
			}
			ids[s.TraceID()] = id
		}
		s.SetTraceID(id)
		if i%50 == 0 {
			s.Attributes().Remove("http.route")
			s.SetName(fmt.Sprintf("job-x%dy", rng.Uint64()))
		}
	}
}
