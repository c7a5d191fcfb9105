package propagation_test

import (
	"context"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	otelpropagation "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// key is a key of somebody else.
type key int

// randomContext stacks contexts of all kinds. cancel ends some of them.
func randomContext(r *rand.Rand) (ctx context.Context, cancel func()) {
	ctx = context.Background()
	var cancels []context.CancelFunc
	for range r.IntN(6) {
		var c context.CancelFunc
		switch r.IntN(8) {
		case 0:
			ctx, c = context.WithCancel(ctx)
		case 1:
			ctx, c = context.WithTimeout(ctx, time.Duration(r.IntN(2000)-500)*time.Millisecond)
		case 2:
			ctx, c = context.WithDeadline(ctx, time.UnixMilli(time.Now().UnixMilli()+int64(r.IntN(2000))))
		case 3:
			ctx, c = context.WithTimeoutCause(ctx, time.Minute, errors.New("cause"))
		case 4:
			ctx = context.WithoutCancel(ctx)
		case 5:
			ctx = context.WithValue(ctx, key(r.Int()), "value")
		case 6:
			ctx, c = context.WithCancel(ctx)
			c()
		case 7:
			ctx = propagation.New().Extract(ctx, otelpropagation.MapCarrier{})
		}
		if c != nil {
			cancels = append(cancels, c)
		}
	}
	return ctx, func() {
		for _, c := range cancels {
			c()
		}
	}
}

func randomHeaders(r *rand.Rand) otelpropagation.MapCarrier {
	headers := otelpropagation.MapCarrier{}
	if r.IntN(3) > 0 {
		headers["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	}
	switch r.IntN(4) {
	case 0:
		headers[propagation.Header] = "obs1;r=soon"
	case 1, 2:
		headers[propagation.Header] = fmt.Sprintf(`obs1;r=%d;t=3000;h=3;s="00f067aa0ba902b7"`, r.IntN(4000)-1000)
	}
	if r.IntN(2) == 0 {
		headers["x-timeout-budget-ms"] = fmt.Sprint(r.IntN(3000))
	}
	if r.IntN(2) == 0 {
		headers["x-request-deadline"] = fmt.Sprint(time.Now().UnixMilli() + int64(r.IntN(3000)) - 500)
	}
	return headers
}

// What decides how long a request may take.
type authority struct {
	deadline    time.Time
	hasDeadline bool
	done        <-chan struct{}
	err, cause  error
}

func authorityOf(ctx context.Context) authority {
	a := authority{done: ctx.Done(), err: ctx.Err(), cause: context.Cause(ctx)}
	a.deadline, a.hasDeadline = ctx.Deadline()
	return a
}

func TestNothingChangesDeadlineDoneOrErr(t *testing.T) {
	s := newService(t, propagation.WithKnownAuthorityHeaders(), propagation.WithInternalSpans(), propagation.WithMessaging())
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		for i := range 3000 {
			ctx, cancel := randomContext(r)
			before := authorityOf(ctx)
			out := s.propagator.Extract(ctx, randomHeaders(r))
			if got := authorityOf(out); got != before {
				t.Fatalf("%d: Extract turned %+v into %+v", i, before, got)
			}
			started, span := s.start(out, trace.SpanKind(r.IntN(6)))
			propagation.Observe(started)
			propagation.MarkDegraded(started, "coupon")
			s.propagator.Inject(started, otelpropagation.MapCarrier{})
			span.End()
			if got := authorityOf(started); got != before {
				t.Fatalf("%d: a span turned %+v into %+v", i, before, got)
			}
			cancel()
			synctest.Wait()
			if got, want := authorityOf(started), authorityOf(ctx); got != want {
				t.Fatalf("%d: cancelled %+v, extracted %+v", i, want, got)
			}
			time.Sleep(3 * time.Second)
			if got, want := authorityOf(started), authorityOf(ctx); got != want {
				t.Fatalf("%d: later %+v, extracted %+v", i, want, got)
			}
		}
	})
}

// The handlers of one request run side by side, with what Extract returned among
// them, and log it. Whatever the order, the request keeps the earliest deadline
// that was observed, and no call may send more.
func TestHandlersOfARequestMayRunSideBySide(t *testing.T) {
	s := newService(t, propagation.WithKnownAuthorityHeaders())
	caller := within(t, t.Context(), time.Minute)
	for range 50 {
		headers, _ := s.call(caller)
		headers["x-envoy-expected-rq-timeout-ms"] = "15000"
		extracted := s.propagator.Extract(t.Context(), headers)
		ctx, span := s.start(extracted, trace.SpanKindServer)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				own := within(t, ctx, time.Duration(30+10*i)*time.Second)
				propagation.Observe(own)
				s.call(own)
				s.start(own, trace.SpanKindServer)
				s.start(s.propagator.Extract(own, otelpropagation.MapCarrier{}), trace.SpanKindConsumer)
				if got := fmt.Sprint(extracted); !strings.HasSuffix(got, ".WithLatencyBudget") {
					t.Errorf("the context is %q", got)
				}
			})
		}
		wg.Wait()
		last, _ := s.call(ctx)
		var r float64
		if _, err := fmt.Sscanf(last[propagation.Header], "obs1;r=%f;", &r); err != nil || r > 30_000 || r < 20_000 {
			t.Fatalf("sent %q, want the 30 s that were observed (%v)", last[propagation.Header], err)
		}
		if got, _ := stamped(span)["announced.remaining"].(float64); got <= 50 || got > 60 {
			t.Fatalf("announced.remaining %v", got)
		}
	}
}

func TestContextIsNamedAfterItsParent(t *testing.T) {
	type custom struct{ context.Context }
	p := propagation.New()
	for _, test := range []struct {
		parent context.Context
		want   string
	}{
		{context.Background(), "context.Background.WithLatencyBudget"},
		{custom{context.Background()}, "propagation_test.custom.WithLatencyBudget"},
	} {
		if got := fmt.Sprint(p.Extract(test.parent, otelpropagation.MapCarrier{})); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestAnnouncementDoesNotExpireTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := propagation.New().Extract(t.Context(), otelpropagation.MapCarrier{
			propagation.Header: `obs1;r=1;t=1;h=1;s="00f067aa0ba902b7"`,
		})
		time.Sleep(time.Second)
		if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
			t.Errorf("deadline %v, err %v", ok, ctx.Err())
		}
	})
}

// A context type that package context does not know costs a goroutine per child,
// unless it leaves Done to its parent.
func TestChildrenOfTheContextStartNoGoroutines(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := propagation.New().Extract(parent, otelpropagation.MapCarrier{})
	before := runtime.NumGoroutine()
	children := make([]context.Context, 1000)
	for i := range children {
		var c context.CancelFunc
		children[i], c = context.WithCancel(ctx)
		defer c()
	}
	if after := runtime.NumGoroutine(); after > before+10 { // Others may come and go.
		t.Errorf("%d goroutines, %d before", after, before)
	}
	cancel()
	for _, child := range children {
		if child.Err() == nil {
			t.Fatal("a child outlives its parent")
		}
	}
}

// No exported name offers a context other than Extract's, a duration or an
// instant: nothing that could be taken for a timeout.
func TestAPIOffersNoTimeout(t *testing.T) {
	const path = "github.com/latencybudget/latencybudget/propagation"
	exports := map[string]string{}
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", path, path+"/autoreg").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	names := 0
	for _, p := range []string{path, path + "/attr", path + "/autoreg"} {
		pkg, err := imp.Import(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			obj := pkg.Scope().Lookup(name)
			if !obj.Exported() {
				continue
			}
			names++
			if what := offers(obj); what != "" {
				t.Errorf("%s.%s offers a %s", p, name, what)
			}
		}
	}
	if names < 40 {
		t.Errorf("only %d names looked at", names)
	}
}

// offers returns the first type that a user of obj can get out of it and must
// not, or "".
func offers(obj types.Object) string {
	var results []types.Type
	signature := func(f types.Object) {
		for v := range f.Type().(*types.Signature).Results().Variables() {
			results = append(results, v.Type())
		}
	}
	switch obj := obj.(type) {
	case *types.Func:
		signature(obj)
	case *types.TypeName:
		methods := types.NewMethodSet(types.NewPointer(obj.Type()))
		if types.IsInterface(obj.Type()) {
			methods = types.NewMethodSet(obj.Type())
		}
		for m := range methods.Methods() {
			if m.Obj().Exported() {
				signature(m.Obj())
			}
		}
		if s, ok := obj.Type().Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				results = append(results, f.Type())
			}
		}
	default:
		results = append(results, obj.Type())
	}
	for _, r := range results {
		for _, forbidden := range []string{"context.", "time."} {
			if strings.Contains(types.TypeString(r, nil), forbidden) {
				return r.String()
			}
		}
	}
	return ""
}

func TestOffersFindsTimeouts(t *testing.T) {
	timePkg, err := importer.Default().Import("time")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"Since": true, "Second": true, "Timer": true, "ParseError": false} {
		if got := offers(timePkg.Scope().Lookup(name)); (got != "") != want {
			t.Errorf("time.%s offers %q", name, got)
		}
	}
}
