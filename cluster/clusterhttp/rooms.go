package clusterhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

const (
	defaultRooms  = 1000
	defaultRelays = 2
	maxRooms      = 10_000
	listTime      = 10 * time.Second // time limit for a list of rooms, including the wait for other lists
)

// resolveRoom returns the node of a room. If the room is on this node, resolveRoom also hosts the room. The
// caller is usually the media server next to this agent, which is about to serve the room. A caller that does
// not serve rooms sets no_host.
func (a *api) resolveRoom(room string, r *http.Request) (any, *Problem) {
	var body roomDemand
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	d := body.Demand
	if p := checkDemand(d); p != nil {
		return nil, p
	}
	at, err := a.rooms.Resolve(r.Context(), room, d)
	if err != nil {
		return nil, a.problemOf(err)
	}
	if at.Node != a.self || a.hostFor < 0 || body.NoHost {
		return a.assignmentOf(at), nil
	}
	h, err := a.rooms.Host(r.Context(), room, d)
	if elsewhere, ok := errors.AsType[*affinity.NotOwnerError](err); ok {
		return a.assignmentOf(elsewhere.Owner), nil
	}
	if err != nil {
		return nil, a.problemOf(err)
	}
	h.LapseAfter(a.hostFor)
	if body.Touch {
		_ = h.Restate(d) // cannot fail: d is valid
	}
	at.Epoch = h.Epoch()
	answer := a.assignmentOf(at)
	answer.Hosted, answer.TouchWithinS = true, max(1, int64(a.hostFor.Seconds()))
	return &answer, nil
}

// showRoom returns the node of a room and the reason. If the room is not pinned, showRoom returns the node
// that the room would get.
func (a *api) showRoom(room string, r *http.Request) (any, *Problem) {
	d, p := demandIn(r.URL.RawQuery)
	if p != nil {
		return nil, p
	}
	e, err := a.rooms.Explain(r.Context(), room, d)
	if err != nil {
		return nil, a.problemOf(err)
	}
	detail := RoomDetail{RoomAssignment: a.assignmentOf(e.Assignment), Pinned: e.Pinned, Candidates: []RoomCandidate{}}
	for _, c := range e.Candidates {
		detail.Candidates = append(detail.Candidates, RoomCandidate{
			ID: c.Member.ID, Load: max(0, c.Member.Load), Reserved: c.Reserved, Ceiling: c.Ceiling,
			Capacity: c.Member.Capacity, Preference: c.Preference, Taken: c.Taken, Why: c.Why,
		})
	}
	return &detail, nil
}

// roomRelays returns the best additional nodes for a room that is too large for its own node.
func (a *api) roomRelays(room string, r *http.Request) (any, *Problem) {
	n, p := countOf(r, "n", defaultRelays, maxOwners)
	if p != nil {
		return nil, p
	}
	d, p := demandIn(r.URL.RawQuery)
	if p != nil {
		return nil, p
	}
	relays, err := a.rooms.Relays(r.Context(), room, d, n)
	if err != nil {
		return nil, a.problemOf(err)
	}
	s := a.agent.Snapshot()
	answer := RoomRelays{Room: room, Relays: []Member{}}
	for _, m := range relays {
		answer.Relays = append(answer.Relays, memberOf(s, m))
	}
	return &answer, nil
}

// listRooms serves only one caller at a time, because it queries the store for every partition.
func (a *api) listRooms(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	if a.rooms == nil {
		return nil, noStore()
	}
	node, limit, p := listOf(r)
	if p != nil {
		return nil, p
	}
	if a.agent.Snapshot().Table == nil {
		return nil, a.problemOf(cluster.ErrNotReady)
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	select {
	case a.listing <- struct{}{}:
		defer func() { <-a.listing }()
	case <-ctx.Done():
		return nil, problem(http.StatusServiceUnavailable, CodeBusy, "another list of rooms is in progress; try again in a second")
	}
	found, err := a.rooms.Rooms(ctx, node, limit+1)
	if err != nil {
		if !errors.Is(err, pinstore.ErrStore) {
			err = fmt.Errorf("%w: %w", pinstore.ErrStore, err)
		}
		return nil, a.problemOf(err)
	}
	answer := Rooms{Rooms: []PinnedRoom{}, Truncated: len(found) > limit, StoreProblem: a.rooms.Stats().StoreProblem}
	for _, e := range found[:min(limit, len(found))] {
		answer.Rooms = append(answer.Rooms, PinnedRoom{
			Room: e.Room, Partition: e.Partition, Node: e.Pin.Node, Incarnation: e.Pin.Number,
			Epoch: e.Pin.Epoch, Size: e.Pin.Size,
		})
	}
	slices.SortFunc(answer.Rooms, func(a, b PinnedRoom) int { return strings.Compare(a.Room, b.Room) })
	return &answer, nil
}

func (a *api) moveRoom(room string, r *http.Request) (any, *Problem) {
	var body struct {
		To *string `json:"to"`
	}
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	if body.To == nil {
		return nil, badRequest(`to is missing: send {"to":"<id of a node>"}`)
	}
	to := lease.NodeID(*body.To)
	if err := to.Validate(); err != nil {
		return nil, badRequest("to: %s", bare(err))
	}
	a.audit(r)
	at, err := a.rooms.Move(r.Context(), room, to)
	if err != nil {
		return nil, a.problemOf(err)
	}
	return a.assignmentOf(at), nil
}

// reportRoom returns the node of a room for a client that has lost its connection to the room's node.
func (a *api) reportRoom(room string, r *http.Request) (any, *Problem) {
	var body struct {
		To    *string `json:"to"`
		Epoch uint64  `json:"epoch"`
	}
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	if body.To == nil {
		return nil, badRequest(`to is missing: send {"to":"<id of the node that was lost>","epoch":<of its directive>}`)
	}
	to := lease.NodeID(*body.To)
	if err := to.Validate(); err != nil {
		return nil, badRequest("to: %s", bare(err))
	}
	at, err := a.rooms.Report(r.Context(), reconnect.Directive{Room: room, To: to, Epoch: body.Epoch})
	if err != nil {
		return nil, a.problemOf(err)
	}
	return a.assignmentOf(at), nil
}

func (a *api) releaseRoom(room string, r *http.Request) (any, *Problem) {
	if p := decode(r, &struct{}{}); p != nil {
		return nil, p
	}
	a.audit(r)
	if err := a.rooms.Release(r.Context(), room); err != nil {
		return nil, a.problemOf(err)
	}
	return &ReleasedRoom{room}, nil
}

// reserveRoom keeps units of load free for a room until a time, and returns the room's node.
func (a *api) reserveRoom(room string, r *http.Request) (any, *Problem) {
	var body roomReservation
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	if p := checkDemand(body.Demand); p != nil {
		return nil, p
	}
	if body.Until.IsZero() {
		return nil, badRequest(`until is missing: send {"units":<N>,"until":"<time in RFC 3339>"}`)
	}
	a.audit(r)
	at, err := a.rooms.Reserve(r.Context(), room, body.Demand, body.Until)
	switch {
	case errors.Is(err, affinity.ErrDemand):
		return nil, badRequest("%s", bare(err))
	case err != nil:
		return nil, a.problemOf(err)
	}
	return a.assignmentOf(at), nil
}

func (a *api) cancelReservation(room string, r *http.Request) (any, *Problem) {
	if p := decode(r, &struct{}{}); p != nil {
		return nil, p
	}
	a.audit(r)
	if err := a.rooms.CancelReservation(r.Context(), room); err != nil {
		return nil, a.problemOf(err)
	}
	return &CancelledReservation{room}, nil
}

func (a *api) listReservations(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	if a.rooms == nil {
		return nil, noStore()
	}
	all, err := a.rooms.Reservations(r.Context())
	if err != nil {
		return nil, a.problemOf(err)
	}
	return &Reservations{append([]affinity.Reservation{}, all...)}, nil
}

func (a *api) assignmentOf(at affinity.Assignment) RoomAssignment {
	answer := RoomAssignment{
		Room: at.Room, Partition: at.Partition, Incarnation: at.Number,
		Source: at.Source, Reason: strings.TrimPrefix(at.Reason, "affinity: "), Epoch: at.Epoch,
	}
	switch {
	case at.Member != nil:
		answer.Node = memberOf(a.agent.Snapshot(), at.Member)
	case at.Node != "":
		answer.Node = Member{Profile: lease.Profile{ID: at.Node, Incarnation: at.Number}, State: lease.Left}
	}
	return answer
}

func noStore() *Problem {
	return problem(http.StatusNotImplemented, CodeNoStore,
		"this agent pins no rooms: it was started without --redis; GET /v1/place?key=… places keys by hash")
}

// room returns a handler for an endpoint of the room that the path names.
func (a *api) room(answer func(room string, r *http.Request) (any, *Problem)) http.HandlerFunc {
	return a.open(http.StatusOK, func(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
		room, p := a.roomOf(r)
		if p != nil {
			return nil, p
		}
		return answer(room, r)
	})
}

// roomOf returns the name of the room in the path.
func (a *api) roomOf(r *http.Request) (string, *Problem) {
	if a.rooms == nil {
		return "", noStore()
	}
	room := r.PathValue("room")
	return room, checkRoom(room)
}

func checkRoom(room string) *Problem {
	if err := affinity.CheckName(room); err != nil {
		return badRequest("room: %s", bare(err))
	}
	return nil
}

// bare returns the text of an error without its package prefix.
func bare(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "affinity: "), "lease: "), "cluster: ")
}

func listOf(r *http.Request) (node lease.NodeID, limit int, _ *Problem) {
	id, p := param(r.URL.RawQuery, "node")
	if p != nil {
		return "", 0, p
	}
	node = lease.NodeID(id)
	if id != "" {
		if err := node.Validate(); err != nil {
			return "", 0, badRequest("node: %s", bare(err))
		}
	}
	limit, p = countOf(r, "limit", defaultRooms, maxRooms)
	return node, limit, p
}
