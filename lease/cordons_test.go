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

// drawCordon draws a valid cordon for a message with the given stamp.
func drawCordon(stamp Stamp) func(t *rapid.T) Cordon {
	return func(t *rapid.T) Cordon {
		at := stamp - Stamp(rapid.Int64Range(0, int64(oldestCordon)).Draw(t, "age"))
		keep := rapid.Int64Range(0, int64(maxAge)).Draw(t, "remembered")
		return Cordon{
			ID: NodeID(rapid.StringMatching(`[a-z]{1,64}`).Draw(t, "id")), At: at,
			Until: at + Stamp(rapid.Int64Range(0, keep).Draw(t, "lasts")), Keep: at + Stamp(keep),
			Reason: rapid.StringMatching(`[ -~]{0,128}`).Draw(t, "reason"), rest: string(drawRest(t)),
		}
	}
}

// drawCordons draws cordons as a set stores them. There are few nodes and few times, so many cordons are for the same
// node at the same time.
func drawCordons(t *rapid.T, ids int) []Cordon {
	draw := rapid.Custom(func(t *rapid.T) Cordon {
		at := Stamp(rapid.IntRange(1, 3).Draw(t, "at"))
		until := at + Stamp(rapid.IntRange(0, 2).Draw(t, "lasts"))
		return Cordon{
			ID: NodeID(fmt.Sprint(rapid.IntRange(1, ids).Draw(t, "id"))), At: at, Until: until,
			Keep: until + Stamp(rapid.IntRange(0, 1).Draw(t, "keep")), Reason: rapid.SampledFrom([]string{"", "x"}).Draw(t, "reason"),
		}
	})
	return mergeCordons(nil, rapid.SliceOfN(draw, 0, 2*MaxCordons).Draw(t, "cordons"))
}

// All nodes agree on the same cordons, however often and in whatever order they receive them, even if there are more
// cordons than a set can hold.
func TestMergeOfCordonsIsAJoin(t *testing.T) {
	for _, ids := range []int{3, 3 * MaxCordons} {
		t.Run(fmt.Sprint(ids), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, b, c := drawCordons(t, ids), drawCordons(t, ids), drawCordons(t, ids)
				equal := func(law string, x, y []Cordon) {
					t.Helper()
					if diff := cmp.Diff(x, y, cmpopts.EquateEmpty(), cmp.AllowUnexported(Cordon{})); diff != "" {
						t.Fatalf("not %s:\n%s", law, diff)
					}
				}
				equal("commutative", mergeCordons(a, b), mergeCordons(b, a))
				equal("associative", mergeCordons(mergeCordons(a, b), c), mergeCordons(a, mergeCordons(b, c)))
				equal("idempotent", mergeCordons(a, a), a)
				equal("absorbing", mergeCordons(mergeCordons(a, b), b), mergeCordons(a, b))
				if n := len(mergeCordons(a, b)); n > MaxCordons {
					t.Fatalf("%d cordons", n)
				}
			})
		})
	}
}

// The latest decision about a node counts.
func TestMergeOfCordonsByHand(t *testing.T) {
	first := Cordon{ID: "n", At: 10, Until: 100, Keep: 100}
	cancelled := Cordon{ID: "n", At: 20, Until: 20, Keep: 100}
	again := Cordon{ID: "n", At: 30, Until: 40, Keep: 100}
	other := Cordon{ID: "o", At: 5, Until: 50, Keep: 50}
	for _, tt := range []struct {
		name       string
		a, b, want []Cordon
	}{
		{"a later cordon", []Cordon{first}, []Cordon{cancelled}, []Cordon{cancelled}},
		{"an earlier cordon", []Cordon{again}, []Cordon{first}, []Cordon{again}},
		{"another node", []Cordon{first}, []Cordon{other}, []Cordon{first, other}},
		{"nothing", []Cordon{first}, nil, []Cordon{first}},
		{"twice in a message", nil, []Cordon{again, first, cancelled, again}, []Cordon{again}},
	} {
		if got := mergeCordons(tt.a, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestDigestOfCordons(t *testing.T) {
	e := Cordon{ID: "n", At: 10, Until: 100, Keep: 100}
	seen := map[uint32]string{0: "none"}
	for name, change := range map[string]func(*Cordon){
		"": func(*Cordon) {}, "id": func(e *Cordon) { e.ID = "m" }, "at": func(e *Cordon) { e.At++ },
		"until": func(e *Cordon) { e.Until-- }, "keep": func(e *Cordon) { e.Keep++ },
		"all three": func(e *Cordon) { e.At++; e.Until++; e.Keep++ },
		"reason":    func(e *Cordon) { e.Reason = "x" }, "later fields": func(e *Cordon) { e.rest = "x" },
	} {
		o := e
		change(&o)
		d := digestOfCordons([]Cordon{o})
		if was, ok := seen[d]; ok {
			t.Errorf("the digests of %q and %q are equal", was, name)
		}
		seen[d] = name
	}
	if d := digestOfCordons(nil); d != 0 {
		t.Errorf("the digest of none is %d", d)
	}
}

func TestValidateCordon(t *testing.T) {
	good := Cordon{ID: "n", At: 10, Until: 20, Keep: 20, Reason: "élevé"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Cordon){
		"node id":      func(e *Cordon) { e.ID = "" },
		"before it":    func(e *Cordon) { e.Until = 9 },
		"it ends":      func(e *Cordon) { e.Keep = 19 },
		"longer than":  func(e *Cordon) { e.Keep = e.At + maxAge + 1 },
		"129 bytes":    func(e *Cordon) { e.Reason = strings.Repeat("x", 129) },
		"not one line": func(e *Cordon) { e.Reason = "a\x1b[2J" },
		"UTF-8":        func(e *Cordon) { e.Reason = "\xff" },
	} {
		e := good
		change(&e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
