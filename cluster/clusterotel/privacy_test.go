package clusterotel_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/clusterotel"
)

// No trace contains a room's name unless RoomNames is set, and no trace ever contains a token, whatever error occurs.
func TestNames(t *testing.T) {
	for _, named := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newRoomCluster(t, clusterotel.Options{RoomNames: named})
			client := h.client(t, "a")
			outsider := h.client(t, "a")
			outsider.Token = "jane-guesses"
			here, there := h.roomOn(t, "a"), h.roomOn(t, "b")
			presence, err := presence.Start(h.tracing.PresenceStore(presence.NewMemory()), 64, presence.Config{Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer presence.Close()

			ctx, span := h.provider.Tracer("test").Start(t.Context(), "call")
			fails := 0
			do := func(err error) {
				if err != nil {
					fails++
				}
			}
			everything := func() {
				for _, room := range []string{here, there, "jane/doe", "jane resolve", "jane//.."} {
					_, err := client.ResolveRoom(ctx, room, affinity.Demand{Size: 4})
					do(err)
					_, err = client.Room(ctx, room, affinity.Demand{Size: 4})
					do(err)
					_, err = client.RoomRelays(ctx, room, affinity.Demand{Size: 4}, 1)
					do(err)
					_, err = client.MoveRoom(ctx, room, "c")
					do(err)
					_, err = h.rooms["a"].Host(ctx, room, affinity.Demand{Size: 4})
					do(err)
					do(client.ReleaseRoom(ctx, room))
					do(client.ReleaseRoom(ctx, room))
					do(presence.Join(ctx, room, "jane"))
					_, err = presence.Members(ctx, room)
					do(err)
				}
				_, err := client.Place(ctx, "jane")
				do(err)
				_, err = outsider.ResolveRoom(ctx, here, affinity.Demand{Size: 4})
				do(err)
				for _, path := range []string{
					"/v1/rooms/jane", "/v1/rooms/jane/", "//v1/rooms//jane/resolve", "/v1/rooms/jane/doe/resolve",
					"/v1/%72ooms/jane/resolve",
				} {
					resp, err := client.HTTP.Post("http://agent.test"+path, "application/json", strings.NewReader("{}"))
					do(err)
					if err == nil {
						_ = resp.Body.Close()
					}
				}
			}
			everything()
			h.store.refuses.Store(true)
			everything()
			h.store.refuses.Store(false)
			span.End()

			told := text(h.spans.GetSpans())
			if strings.Contains(told, token) || strings.Contains(told, "jane-guesses") {
				t.Errorf("a token is in the trace:\n%s", told)
			}
			if got := strings.Contains(told, "jane"); got != named {
				t.Errorf("with RoomNames %v, names in the trace: %v:\n%s", named, got, told)
			}
			if named && !strings.Contains(told, "roost.room "+here) {
				t.Error("RoomNames has no roost.room")
			}
			if !strings.Contains(told, http.MethodPost) || fails < 20 {
				t.Errorf("%d calls failed: the test sees too little", fails)
			}
		})
	}
}
