package clusterhttp

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ResolveRoom returns the node of a room of size participants, and pins the room if
// needed. If that is the agent's own node, the node hosts the room from now on, with that
// size; see RoomAssignment.Hosted.
func (c *Client) ResolveRoom(ctx context.Context, room string, size int) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, room, "/resolve", map[string]int{"size": size})
}

// Room returns the node of a room, or the node that a room of size participants would
// get, and why. It pins nothing.
func (c *Client) Room(ctx context.Context, room string, size int) (RoomDetail, error) {
	return askRoom[RoomDetail](ctx, c, http.MethodGet, room, "?size="+strconv.Itoa(size), nil)
}

// Rooms returns at most limit rooms, 1 to 10,000, that are pinned to a node, or to any
// node if node is empty. Limit 0 means 1,000.
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

// MoveRoom moves a pinned room to another node; its clients have to reconnect.
func (c *Client) MoveRoom(ctx context.Context, room, to string) (RoomAssignment, error) {
	return askRoom[RoomAssignment](ctx, c, http.MethodPost, room, "/move", map[string]string{"to": to})
}

// ReleaseRoom deletes a room's pin.
func (c *Client) ReleaseRoom(ctx context.Context, room string) error {
	_, err := askRoom[ReleasedRoom](ctx, c, http.MethodDelete, room, "", nil)
	return err
}

// askRoom makes one call about a room. It rejects invalid names, because some of them
// cannot be part of a path.
func askRoom[T any](ctx context.Context, c *Client, method, room, rest string, body any) (answer T, _ error) {
	if p := checkRoom(room); p != nil {
		return answer, p
	}
	return ask[T](ctx, c, method, roomPath(room)+rest, body)
}

// roomPath also escapes dots: the room .. would read as the parent directory.
func roomPath(room string) string {
	return "/v1/rooms/" + strings.ReplaceAll(url.PathEscape(room), ".", "%2E")
}
