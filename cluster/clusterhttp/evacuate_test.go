package clusterhttp

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func TestEvacuate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, client := t.Context(), withRooms(t)
		list, err := client.Rooms(ctx, "a", 0)
		here := len(list.Rooms)
		if err != nil || here == 0 {
			t.Fatalf("%d rooms, %v", here, err)
		}
		c, err := client.Evacuate(ctx, 10, 0)
		if err != nil || c.State != lease.Draining || c.Evacuation == nil || c.Evacuation.Over {
			t.Fatalf("%+v, %v", c, err)
		}
		time.Sleep(time.Second)
		half := progress(t, client)
		if half.Over || half.Moved == 0 || half.Moved+half.Left != here {
			t.Errorf("after a second: %+v of %d rooms", half, here)
		}
		time.Sleep(time.Duration(here) * time.Second / 10)
		if end := progress(t, client); !end.Over || end.Error != "" || end.Moved != here || end.Left != 0 {
			t.Errorf("at the end: %+v of %d rooms", end, here)
		}
		if list, err := client.Rooms(ctx, "a", 0); err != nil || len(list.Rooms) != 0 {
			t.Errorf("the node still has %+v, %v", list.Rooms, err)
		}
	})
}

// If the node is undrained, its evacuation ends with an error that says why.
func TestUndrainEndsEvacuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, client := t.Context(), withRooms(t)
		if _, err := client.Evacuate(ctx, 1, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := client.Undrain(ctx); err != nil {
			t.Fatal(err)
		}
		left := progress(t, client)
		time.Sleep(10 * time.Second)
		if end := progress(t, client); !end.Over || end.Error == "" || end.Left != left.Left || end.Left == 0 {
			t.Errorf("%+v after %+v", end, left)
		}
	})
}

// If the node is drained again, the rate and the deadline of the second drain apply.
func TestEvacuateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, client := t.Context(), withRooms(t)
		for _, deadline := range []time.Duration{time.Hour, 5 * time.Second} {
			if _, err := client.Evacuate(ctx, 1, deadline); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		if end := progress(t, client); !end.Over || end.Error != "" || end.Left != 0 {
			t.Errorf("%+v", end)
		}
	})
}

// A second drain starts while the first drain still waits for other members. When the first evacuation ends, the second
// one must not look ended.
func TestEvacuateWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{})
		api := Handler(h.Agent("a"), Options{Rooms: h.rooms["a"], Log: quiet})
		h.Vanish("b") // until its lease expires, not all members agree
		for range 2 {
			expect(t, do(api, "POST", "/v1/drain?wait=0s", `{"rooms":{}}`, "Content-Type: application/json"), 200, `"over":false`)
			time.Sleep(100 * time.Millisecond)
		}
		if h.Agent("a").Converged() {
			t.Fatal("no evacuation has to wait")
		}
		if got := h.rooms["a"].Stats().Evacuation; got.Over || got.Error != "" {
			t.Errorf("the later evacuation waits: %+v", got)
		}
		expect(t, do(api, "POST", "/v1/undrain?wait=0s", `{}`, "Content-Type: application/json"), 200, "")
		time.Sleep(100 * time.Millisecond)
		if got := h.rooms["a"].Stats().Evacuation; !got.Over || !strings.Contains(got.Error, "accepts rooms again") {
			t.Errorf("after an undrain: %+v", got)
		}
	})
}

func TestEvacuateWithNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{})
		api := Handler(h.Agent("a"), Options{Rooms: h.rooms["a"], Log: quiet})
		const json = "Content-Type: application/json"
		for body, want := range map[string]string{
			`{"rooms":1}`:                           "rooms must be an object, not",
			`{"rooms":{"rate":-1}}`:                 "rooms.rate is -1; it must be 0 to 100000 rooms a second",
			`{"rooms":{"rate":"fast"}}`:             "rooms.rate must be a whole number",
			`{"rooms":{"deadline_ms":99999999999}}`: "rooms.deadline_ms is 99999999999",
			`{"rooms":{"speed":1}}`:                 "unknown field",
		} {
			expect(t, do(api, "POST", "/v1/drain", body, json), 400, want)
		}
		expect(t, do(Handler(h.Agent("a"), Options{Log: quiet}), "POST", "/v1/drain", `{"rooms":{}}`, json), 501, "pins no rooms")
		if h.Agent("a").Snapshot().Self.State != lease.Active {
			t.Error("a refused drain drains")
		}
	})
}

// withRooms returns a client of node a, in a cluster with 90 rooms.
func withRooms(t *testing.T) *Client {
	t.Helper()
	client := open(t, pinstore.NewMemory(), Options{}).clients["a"]
	for i := range 90 {
		if _, err := client.ResolveRoom(t.Context(), fmt.Sprint("r-", i), affinity.Demand{Size: 2}); err != nil {
			t.Fatal(err)
		}
	}
	return client
}

func progress(t *testing.T, client *Client) affinity.Evacuation {
	t.Helper()
	stats, err := client.Stats(t.Context())
	if err != nil || stats.Evacuation == nil {
		t.Fatalf("%+v, %v", stats.Evacuation, err)
	}
	return *stats.Evacuation
}
