package plan

// Limits are what a plan says of a hop, in ns; 0 where it says nothing.
type Limits struct {
	Budget   int64 // share; of an endpoint its budget
	Cap      int64
	Floor    int64
	Tail     int64
	MaxQueue int64
	// Degradable tells that the caller may do without the call.
	Degradable bool
}

// Index finds the hops of a plan by what a single span or call knows of itself.
// It is immutable, and safe for use from several goroutines.
//
// The same hop may stand at several places of the tree with different numbers,
// and a span does not know its place: of each number the one is taken by which
// the fewest calls are wrong, so that no call is blamed for the place of another.
type Index struct {
	revision  string
	hops      map[hopKey]Limits
	endpoints map[operationKey]Limits
	anyCaller map[operationKey]Limits // over all places, endpoints too
}

type operationKey struct{ service, operation string }

type hopKey struct {
	caller string
	operationKey
}

// NewIndex indexes a valid plan.
func NewIndex(p *Plan) *Index {
	x := &Index{
		revision: p.Revision, hops: make(map[hopKey]Limits),
		endpoints: make(map[operationKey]Limits), anyCaller: make(map[operationKey]Limits),
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		key := operationKey{e.Service, e.Operation}
		limits := Limits{Budget: int64(e.Budget), Cap: int64(e.Budget), Tail: int64(e.Tail)}
		add(x.endpoints, key, limits)
		add(x.anyCaller, key, limits)
		x.addAll(e.Service, e.Hops)
	}
	return x
}

func (x *Index) addAll(caller string, hops []Hop) {
	for i := range hops {
		h := &hops[i]
		key := operationKey{h.Callee, h.Operation}
		limits := Limits{
			Budget: int64(h.Share), Cap: int64(max(h.Cap, h.Share)), Floor: int64(h.Floor), Tail: int64(h.Tail),
			MaxQueue: int64(h.MaxQueue), Degradable: h.Degradable,
		}
		add(x.hops, hopKey{caller, key}, limits)
		add(x.anyCaller, key, limits)
		x.addAll(h.Callee, h.Hops)
	}
}

// add widens what is known under a key. A number that one place does not give
// limits no place.
func add[K comparable](known map[K]Limits, key K, l Limits) {
	if k, twice := known[key]; twice {
		l = Limits{
			Budget: looser(k.Budget, l.Budget), Cap: looser(k.Cap, l.Cap), MaxQueue: looser(k.MaxQueue, l.MaxQueue),
			Floor: min(k.Floor, l.Floor), Tail: min(k.Tail, l.Tail),
			Degradable: k.Degradable || l.Degradable,
		}
	}
	known[key] = l
}

// looser returns the larger of two limits of which 0 is none.
func looser(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// Revision is the revision of the plan.
func (x *Index) Revision() string { return x.revision }

// Find returns what the plan says of a call; false where it says nothing.
//
// caller is the calling service, "" where it is not known: then the call may be
// at any place of the operation. A caller that the plan does not have with this
// operation is somebody outside of it. What it calls is an endpoint, or no hop of
// this plan: it has a budget of its own, which nobody here knows.
func (x *Index) Find(caller, callee, operation string) (Limits, bool) {
	key := operationKey{callee, operation}
	if caller == "" {
		l, known := x.anyCaller[key]
		return l, known
	}
	if l, known := x.hops[hopKey{caller, key}]; known {
		return l, true
	}
	l, known := x.endpoints[key]
	return l, known
}
