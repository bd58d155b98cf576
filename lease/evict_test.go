package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawEviction draws a valid eviction for a message with the given stamp.
func drawEviction(stamp Stamp) func(t *rapid.T) Eviction {
	return func(t *rapid.T) Eviction {
		at := stamp - Stamp(rapid.Int64Range(0, int64(oldestEviction)).Draw(t, "age"))
		keep := rapid.Int64Range(0, int64(maxAge)).Draw(t, "remembered")
		return Eviction{
			ID: NodeID(rapid.StringMatching(`[a-z]{1,64}`).Draw(t, "id")), At: at,
			Until: at + Stamp(rapid.Int64Range(0, keep).Draw(t, "lasts")), Keep: at + Stamp(keep),
			Reason: rapid.StringMatching(`[ -~]{0,128}`).Draw(t, "reason"), rest: string(drawRest(t)),
		}
	}
}

// drawWords draws evictions as a set holds them, of few nodes at few moments, so that
// many concern the same node at the same time.
func drawWords(t *rapid.T, ids int) []Eviction {
	draw := rapid.Custom(func(t *rapid.T) Eviction {
		at := Stamp(rapid.IntRange(1, 3).Draw(t, "at"))
		until := at + Stamp(rapid.IntRange(0, 2).Draw(t, "lasts"))
		return Eviction{
			ID: NodeID(fmt.Sprint(rapid.IntRange(1, ids).Draw(t, "id"))), At: at, Until: until,
			Keep: until + Stamp(rapid.IntRange(0, 1).Draw(t, "keep")), Reason: rapid.SampledFrom([]string{"", "x"}).Draw(t, "reason"),
		}
	})
	return mergeEvictions(nil, rapid.SliceOfN(draw, 0, 2*MaxEvictions).Draw(t, "words"))
}

// All nodes arrive at the same evictions, in any order of messages and after any number,
// also if there are too many.
func TestMergeOfEvictionsIsAJoin(t *testing.T) {
	for _, ids := range []int{3, 3 * MaxEvictions} {
		t.Run(fmt.Sprint(ids), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, b, c := drawWords(t, ids), drawWords(t, ids), drawWords(t, ids)
				equal := func(law string, x, y []Eviction) {
					t.Helper()
					if diff := cmp.Diff(x, y, cmpopts.EquateEmpty(), cmp.AllowUnexported(Eviction{})); diff != "" {
						t.Fatalf("not %s:\n%s", law, diff)
					}
				}
				equal("commutative", mergeEvictions(a, b), mergeEvictions(b, a))
				equal("associative", mergeEvictions(mergeEvictions(a, b), c), mergeEvictions(a, mergeEvictions(b, c)))
				equal("idempotent", mergeEvictions(a, a), a)
				equal("absorbing", mergeEvictions(mergeEvictions(a, b), b), mergeEvictions(a, b))
				if n := len(mergeEvictions(a, b)); n > MaxEvictions {
					t.Fatalf("%d evictions", n)
				}
			})
		})
	}
}

// The latest word on a node counts, and of two at the same time the same one for all.
func TestMergeOfEvictionsByHand(t *testing.T) {
	first := Eviction{ID: "n", At: 10, Until: 100, Keep: 100}
	cancelled := Eviction{ID: "n", At: 20, Until: 20, Keep: 100}
	again := Eviction{ID: "n", At: 30, Until: 40, Keep: 100}
	other := Eviction{ID: "o", At: 5, Until: 50, Keep: 50}
	for _, tt := range []struct {
		name       string
		a, b, want []Eviction
	}{
		{"a later word", []Eviction{first}, []Eviction{cancelled}, []Eviction{cancelled}},
		{"an earlier word", []Eviction{again}, []Eviction{first}, []Eviction{again}},
		{"another node", []Eviction{first}, []Eviction{other}, []Eviction{first, other}},
		{"nothing", []Eviction{first}, nil, []Eviction{first}},
		{"twice in a message", nil, []Eviction{again, first, cancelled, again}, []Eviction{again}},
	} {
		if got := mergeEvictions(tt.a, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestDigestOfEvictions(t *testing.T) {
	e := Eviction{ID: "n", At: 10, Until: 100, Keep: 100}
	seen := map[uint32]string{0: "none"}
	for name, change := range map[string]func(*Eviction){
		"": func(*Eviction) {}, "id": func(e *Eviction) { e.ID = "m" }, "at": func(e *Eviction) { e.At++ },
		"until": func(e *Eviction) { e.Until-- }, "keep": func(e *Eviction) { e.Keep++ },
		"all three": func(e *Eviction) { e.At++; e.Until++; e.Keep++ },
		"reason":    func(e *Eviction) { e.Reason = "x" }, "later fields": func(e *Eviction) { e.rest = "x" },
	} {
		o := e
		change(&o)
		d := digestOfEvictions([]Eviction{o})
		if was, ok := seen[d]; ok {
			t.Errorf("the digests of %q and %q are equal", was, name)
		}
		seen[d] = name
	}
	if d := digestOfEvictions(nil); d != 0 {
		t.Errorf("the digest of none is %d", d)
	}
}

func TestValidateEviction(t *testing.T) {
	good := Eviction{ID: "n", At: 10, Until: 20, Keep: 20, Reason: "élevé"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Eviction){
		"node id":      func(e *Eviction) { e.ID = "" },
		"before it":    func(e *Eviction) { e.Until = 9 },
		"it ends":      func(e *Eviction) { e.Keep = 19 },
		"longer than":  func(e *Eviction) { e.Keep = e.At + maxAge + 1 },
		"129 bytes":    func(e *Eviction) { e.Reason = strings.Repeat("x", 129) },
		"not one line": func(e *Eviction) { e.Reason = "a\x1b[2J" },
		"UTF-8":        func(e *Eviction) { e.Reason = "\xff" },
	} {
		e := good
		change(&e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
