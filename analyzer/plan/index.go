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
	revision string
	hops     map[hopKey]Limits
}

type hopKey struct{ caller, callee, operation string }

// NewIndex indexes a valid plan.
func NewIndex(p *Plan) *Index {
	x := &Index{revision: p.Revision, hops: make(map[hopKey]Limits)}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		x.add("", e.Service, e.Operation, Limits{Budget: int64(e.Budget), Cap: int64(e.Budget), Tail: int64(e.Tail)})
		x.addAll(e.Service, e.Hops)
	}
	return x
}

func (x *Index) addAll(caller string, hops []Hop) {
	for i := range hops {
		h := &hops[i]
		limits := Limits{
			Budget: int64(h.Share), Cap: int64(max(h.Cap, h.Share)), Floor: int64(h.Floor), Tail: int64(h.Tail),
			MaxQueue: int64(h.MaxQueue), Degradable: h.Degradable,
		}
		x.add(caller, h.Callee, h.Operation, limits)
		x.add("", h.Callee, h.Operation, limits)
		x.addAll(h.Callee, h.Hops)
	}
}

// add widens what is known of a hop. A number that one place does not give
// limits no place.
func (x *Index) add(caller, callee, operation string, l Limits) {
	k := hopKey{caller, callee, operation}
	known, twice := x.hops[k]
	if twice {
		l = Limits{
			Budget: looser(known.Budget, l.Budget), Cap: looser(known.Cap, l.Cap), MaxQueue: looser(known.MaxQueue, l.MaxQueue),
			Floor: min(known.Floor, l.Floor), Tail: min(known.Tail, l.Tail),
			Degradable: known.Degradable || l.Degradable,
		}
	}
	x.hops[k] = l
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

// Find returns what the plan says of a call. An empty caller is one that is not
// known: then it stands for all callers of the operation, and for endpoints.
func (x *Index) Find(caller, callee, operation string) (Limits, bool) {
	l, known := x.hops[hopKey{caller, callee, operation}]
	if !known && caller != "" {
		l, known = x.hops[hopKey{"", callee, operation}]
	}
	return l, known
}
