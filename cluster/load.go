package cluster

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/lease"
)

// MaxResources is the maximum number of resources in Config.Resources.
const MaxResources = 4

const maxResourceName = 64 // bytes

// Load is the load of this node, as its application has reported it.
type Load struct {
	Units     int64      // from SetLoad or ComputeLoad; lease.NoLoad before the first call
	Computed  bool       // Units come from ComputeLoad, so SetLoad fails
	Used      int64      // from SetUse, in units: what the use of the tightest resource amounts to; lease.NoLoad before the first call
	Ahead     int64      // from ReserveLoad, in addition to Units and Used
	Resources []Resource // sorted by name. Don't modify the slice, because all readers share it.
}

// Total returns the load that the node reports with its heartbeats, in units: the greater of Units and Used, plus
// Ahead. Total returns lease.NoLoad if the application has reported neither Units nor Used.
func (l Load) Total() int64 {
	load := max(l.Units, l.Used)
	switch {
	case load == lease.NoLoad:
		return load
	case l.Ahead > math.MaxInt64-load:
		return math.MaxInt64
	}
	return load + l.Ahead
}

// Resource is one of a node's resources, such as CPU time: see Config.Resources.
type Resource struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	Use      int64  `json:"use"`

	// Tightest is true for the resource whose use is the greatest part of its capacity. Before the first call
	// of SetUse, no resource is the tightest.
	Tightest bool `json:"tightest,omitempty"`
}

// units returns the part of a node's capacity that corresponds to the part of r that is in use, rounded up.
func (r *Resource) units(capacity int64) int64 {
	high, low := bits.Mul64(uint64(r.Use), uint64(capacity))
	low, carry := bits.Add64(low, uint64(r.Capacity-1), 0)
	if high += carry; high >= uint64(r.Capacity) { // bits.Div64 would panic
		return math.MaxInt64
	}
	units, _ := bits.Div64(high, low, uint64(r.Capacity))
	return int64(min(units, math.MaxInt64))
}

// SetLoad sets the load of this node in units. A negative number counts as 0. The node reports its load with
// its heartbeats. If the application also calls SetUse, the node reports the greater load of the two. Without
// either call, the node reports lease.NoLoad. SetLoad returns immediately. While another part of the application
// computes the load, SetLoad returns ErrLoadComputed and changes nothing, because the two would overwrite each
// other's values.
func (a *Agent) SetLoad(units int64) error {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	if a.own.Computed {
		return ErrLoadComputed
	}
	a.setUnits(units)
	return nil
}

// ComputeLoad is for a part of the application that computes this node's load, such as
// affinity.Config.ReportLoad. Until release is called, the load in units is the last value passed to set (0 at
// first), and SetLoad fails. SetUse still works. A second call to ComputeLoad returns ErrLoadComputed. set
// returns immediately.
func (a *Agent) ComputeLoad() (set func(units int64), release func(), err error) {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	if a.own.Computed {
		return nil, nil, ErrLoadComputed
	}
	a.own.Computed = true
	a.setUnits(0)
	set = func(units int64) {
		a.reporting.Lock()
		defer a.reporting.Unlock()
		a.setUnits(units)
	}
	release = func() {
		a.reporting.Lock()
		defer a.reporting.Unlock()
		a.own.Computed = false
	}
	return set, release, nil
}

// ReserveLoad is for a part of the application that keeps capacity free for something that has not started yet,
// such as affinity.Resolver.Reserve. The node reports the last value passed to set in addition to its other load. If
// no other load was set, the node still reports lease.NoLoad. set returns immediately. Each call of ReserveLoad
// returns another set, and their values add up.
func (a *Agent) ReserveLoad() (set func(units int64)) {
	last := int64(0)
	return func(units int64) {
		a.reporting.Lock()
		defer a.reporting.Unlock()
		a.own.Ahead += max(0, units) - last
		last = max(0, units)
		a.load.Store(a.own.Total())
	}
}

// setUnits sets the load in units. The caller must hold a.reporting.
func (a *Agent) setUnits(units int64) {
	a.own.Units = max(0, units)
	a.load.Store(a.own.Total())
}

// SetUse sets how much of the resources in Config.Resources is in use, by name. A resource that is missing in
// use keeps its last value, which is 0 at first. The tightest resource decides: if the use of a resource is
// 95 % of its capacity, the node reports at least 95 % of its Capacity as its load. SetUse works together with
// SetLoad and ComputeLoad, and returns immediately. If use is empty, names a resource that the node does not have,
// or has a negative value, SetUse changes nothing and returns an error that wraps ErrUse.
func (a *Agent) SetUse(use map[string]int64) error {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	if err := checkUse(a.own.Resources, use); err != nil {
		return err
	}
	next := slices.Clone(a.own.Resources) // readers have the old slice
	tightest := &next[0]
	for i := range next {
		r := &next[i]
		if units, ok := use[r.Name]; ok {
			r.Use = units
		}
		r.Tightest = false
		if float64(r.Use)/float64(r.Capacity) > float64(tightest.Use)/float64(tightest.Capacity) {
			tightest = r
		}
	}
	tightest.Tightest = true
	a.own.Resources, a.own.Used = next, tightest.units(a.cfg.Capacity)
	a.load.Store(a.own.Total())
	return nil
}

// Load returns the load of this node as of now. The node reports the load with its next heartbeat.
func (a *Agent) Load() Load {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	return a.own
}

// resources returns the resources of a node that has not reported their use.
func (c Config) resources() (all []Resource) {
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		all = append(all, Resource{Name: name, Capacity: c.Resources[name]})
	}
	return all
}

// checkUse returns an error if SetUse cannot accept use for these resources.
func checkUse(all []Resource, use map[string]int64) error {
	if len(all) == 0 {
		return fmt.Errorf("%w: this node has no resources; name them in Config.Resources (--resources)", ErrUse)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	var problems []string
	if len(use) == 0 {
		problems = append(problems, "no resource is given")
	}
	for _, name := range slices.Sorted(maps.Keys(use)) {
		if !slices.Contains(names, name) {
			problems = append(problems, fmt.Sprintf("%.80q is not a resource of this node", name))
		} else if use[name] < 0 {
			problems = append(problems, fmt.Sprintf("%s is %d, but must not be negative", name, use[name]))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; this node has %s", ErrUse, strings.Join(problems, "; "), strings.Join(names, ", "))
}

func (c Config) checkResources(problem func(bad bool, format string, args ...any)) {
	problem(len(c.Resources) > MaxResources, "%d Resources, at most %d", len(c.Resources), MaxResources)
	problem(len(c.Resources) > 0 && c.Capacity == 0, "Resources need a Capacity, because the load is a part of it")
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		problem(!resourceName(name), "Resources has the name %.80q; a name has 1 to %d bytes of [a-zA-Z0-9_]", name, maxResourceName)
		problem(c.Resources[name] <= 0, "Resources has %d for %.80s; it must be at least 1", c.Resources[name], name)
	}
}

// resourceName reports whether s can be the name of a resource, which is the value of a label in metrics and a
// key of a list in flags.
func resourceName(s string) bool {
	word := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return s != "" && len(s) <= maxResourceName && strings.IndexFunc(s, func(r rune) bool { return !word(r) }) < 0
}

// noLoad is the load before the first report.
func noLoad(c Config) Load {
	return Load{Units: lease.NoLoad, Used: lease.NoLoad, Resources: c.resources()}
}
