package clusterhttp

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// ResolveRoom returns the node of a room. If the room is not pinned yet, ResolveRoom pins it to a node that
// fits the demand. If the room is on the agent's own node, the node hosts the room from now on: see
// RoomAssignment.Hosted. The demand can then raise the room's known cost, but not lower it.
func (c *Client) ResolveRoom(ctx context.Context, room string, d affinity.Demand) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, room, "/resolve", roomDemand{Demand: d})
}

// TouchRoom is ResolveRoom for the application that serves the room on the agent's own node. d is the room's
// current demand, and replaces the known demand even if it is lower.
func (c *Client) TouchRoom(ctx context.Context, room string, d affinity.Demand) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, room, "/resolve", roomDemand{Demand: d, Touch: true})
}

// Room returns the node of a room and the reason. If the room is not pinned, Room returns the node that the
// room would get for its demand. Room pins nothing.
func (c *Client) Room(ctx context.Context, room string, d affinity.Demand) (RoomDetail, error) {
	rest := ""
	if query := queryOf(d); len(query) > 0 {
		rest = "?" + query.Encode()
	}
	return askRoom[RoomDetail](ctx, c, http.MethodGet, room, rest, nil)
}

// RoomRelays returns the n best additional nodes for a room that is too large for its own node. d is the
// demand of the part of the room that one relay serves: see affinity.Resolver.Relays. n is 1 to 100, and 0
// means 2.
func (c *Client) RoomRelays(ctx context.Context, room string, d affinity.Demand, n int) (RoomRelays, error) {
	query := queryOf(d)
	if n != 0 {
		query.Set("n", strconv.Itoa(n))
	}
	return askRoom[RoomRelays](ctx, c, http.MethodGet, room, "/relays?"+query.Encode(), nil)
}

// Rooms returns at most limit rooms that are pinned to a node, or to any node if node is empty. limit is 1 to
// 10,000, and 0 means 1,000.
func (c *Client) Rooms(ctx context.Context, node string, limit int) (Rooms, error) {
	query := url.Values{}
	if node != "" {
		query.Set("node", node)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return ask[Rooms](ctx, c, http.MethodGet, "/v1/rooms?"+query.Encode(), nil)
}

// MoveRoom moves a pinned room to another node. The clients of the room must reconnect.
func (c *Client) MoveRoom(ctx context.Context, room, to string) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, room, "/move", map[string]string{"to": to})
}

// ReportRoom returns the node of a room for a client that has lost its connection to the room's node. last is
// the directive that sent the client to that node. The agent checks the node itself: see
// affinity.Resolver.Report.
func (c *Client) ReportRoom(ctx context.Context, last reconnect.Directive) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, last.Room, "/report", map[string]any{"to": last.To, "epoch": last.Epoch})
}

// ReleaseRoom deletes a room's pin.
func (c *Client) ReleaseRoom(ctx context.Context, room string) error {
	_, err := askRoom[ReleasedRoom](ctx, c, http.MethodDelete, room, "", nil)
	return err
}

// ReserveRoom keeps the cost of d free for a room until a time at most 24 h ahead, and returns the room's node: see
// affinity.Resolver.Reserve.
func (c *Client) ReserveRoom(ctx context.Context, room string, d affinity.Demand, until time.Time) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPut, room, "/reservation", roomReservation{d, until})
}

// CancelReservation ends the reservation of a room. CancelReservation fails with affinity.ErrNoReservation if the
// room has none.
func (c *Client) CancelReservation(ctx context.Context, room string) error {
	_, err := askRoom[CancelledReservation](ctx, c, http.MethodDelete, room, "/reservation", nil)
	return err
}

// Reservations returns all reservations.
func (c *Client) Reservations(ctx context.Context) (Reservations, error) {
	return ask[Reservations](ctx, c, http.MethodGet, "/v1/reservations", nil)
}

// askRoom makes a call about a room. askRoom rejects invalid names before the call, because some invalid
// names cannot be part of a path.
func askRoom[T any](ctx context.Context, c *Client, method, room, rest string, body any) (answer T, _ error) {
	if p := checkRoom(room); p != nil {
		return answer, p
	}
	return ask[T](ctx, c, method, roomPath(room)+rest, body)
}

// roomPath returns the path of a room. Dots are escaped, too, because the room name .. would otherwise mean
// the parent directory.
func roomPath(room string) string {
	return "/v1/rooms/" + strings.ReplaceAll(url.PathEscape(room), ".", "%2E")
}
