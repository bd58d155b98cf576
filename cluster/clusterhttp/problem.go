package clusterhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// Problem is the body of every error response, and the error that [Client] returns for such a response.
// errors.Is matches a Problem with the Go error of its code, which is one of cluster.ErrNotReady,
// cluster.ErrNoMembers, cluster.ErrEmptyScope, cluster.ErrClosed, cluster.ErrStalled, cluster.ErrNotMember,
// cluster.ErrLastCandidate, cluster.ErrCordons, cluster.ErrLoadComputed, cluster.ErrSealed,
// cluster.ErrUnknownKey, cluster.ErrKeyLacking, cluster.ErrKeyInUse, cluster.ErrManyKeys, pinstore.ErrStore,
// affinity.ErrNoCapacity, affinity.ErrRequire, affinity.ErrNoPin, affinity.ErrNotLive, affinity.ErrChanged,
// affinity.ErrSettings, affinity.ErrNoReservation, affinity.ErrReservations.
type Problem struct { //nolint:errname // it is the body of a response in the first place
	Message string `json:"error"`
	Code    string `json:"code"`            // one of the Code constants
	State   string `json:"state,omitempty"` // only from /readyz; the values are as in Stats

	Status int `json:"-"` // status of the HTTP response
}

// These are the values of Problem.Code.
const (
	CodeBadRequest   = "bad_request"
	CodeNotFound     = "not_found"
	CodeMethod       = "method_not_allowed"
	CodeNotReady     = "not_ready"
	CodeNoMembers    = "no_members"
	CodeEmptyScope   = "empty_scope"   // no member of the scope can own anything
	CodeNoScope      = "no_such_scope" // the node has no scope of this name
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden" // cross-origin
	CodeBusy         = "busy"      // too many requests or event streams
	CodeClosed       = "closed"
	CodeStalled      = "stalled" // the agent's loop is stalled
	CodeInternal     = "internal"

	// Codes about cordons.
	CodeNotMember     = "not_member"     // no member has this id
	CodeLastCandidate = "last_candidate" // no other member could own anything
	CodeCordons       = "too_many_cordons"

	// Codes about loads.
	CodeLoadComputed = "load_computed" // the agent computes its load, and accepts no posted load

	// Codes about gossip keys.
	CodeSealed     = "encrypts"      // the node encrypts gossip, and cannot go back to plain text
	CodeUnknownKey = "unknown_key"   // the node does not have the key
	CodeKeyLacking = "key_lacking"   // live members do not accept the key
	CodeKeyInUse   = "key_in_use"    // the node or live members send with the key
	CodeManyKeys   = "too_many_keys" // the node has as many keys as it can announce

	// Codes about rooms.
	CodeNoStore    = "no_store"          // the agent has no store of pins
	CodeStore      = "store_unavailable" // the store does not respond
	CodeSettings   = "settings_differ"   // other nodes that use the store have different settings
	CodeNoCapacity = "no_capacity"       // no node has capacity for the room
	CodeRequire    = "no_match"          // no node meets what the room requires
	CodeNoPin      = "no_pin"            // the room is not pinned
	CodeNotLive    = "not_live"          // the target node does not accept rooms
	CodeChanged    = "changed"           // another caller moved the room at the same time

	// Codes about reservations.
	CodeNoReservation = "no_reservation"        // the room has no reservation
	CodeReservations  = "too_many_reservations" // as many rooms are reserved as possible
)

// Error returns the message and the code.
func (p *Problem) Error() string { return p.Message + " (" + p.Code + ")" }

// kinds specifies the response to each error. The first matching row is used. The order matters, because
// listRooms can wrap an agent's error in an ErrStore. If several errors share a code, errors.Is matches the
// error of the first row.
var kinds = []struct { //nolint:gochecknoglobals // a table
	err     error
	status  int
	code    string
	message string // "": the text of the error
	advice  string // appended to the message
}{
	{affinity.ErrNoPin, http.StatusNotFound, CodeNoPin, "", ""},
	{affinity.ErrNotLive, http.StatusConflict, CodeNotLive, "", ""},
	{affinity.ErrChanged, http.StatusConflict, CodeChanged, "", "; resolve the room again"},
	{affinity.ErrNoReservation, http.StatusNotFound, CodeNoReservation, "", ""},
	{affinity.ErrReservations, http.StatusConflict, CodeReservations, "", ""},
	{affinity.ErrNoCapacity, http.StatusServiceUnavailable, CodeNoCapacity, "", ""},
	{affinity.ErrRequire, http.StatusServiceUnavailable, CodeRequire, "", ""},
	{pinstore.ErrStore, http.StatusServiceUnavailable, CodeStore, "", ""},
	{affinity.ErrSettings, http.StatusServiceUnavailable, CodeSettings, "", ""},
	{cluster.ErrNotReady, http.StatusServiceUnavailable, CodeNotReady, "this node has not computed a table yet", "; try again in a second"},
	{cluster.ErrNoMembers, http.StatusServiceUnavailable, CodeNoMembers, "", ""},
	{cluster.ErrEmptyScope, http.StatusServiceUnavailable, CodeEmptyScope, "", ""},
	{cluster.ErrClosed, http.StatusServiceUnavailable, CodeClosed, "the agent has left or was closed", ""},
	{
		cluster.ErrStalled, http.StatusServiceUnavailable, CodeStalled,
		"the agent's loop is stuck: a strategy does not return, or the process gets no CPU",
		"; the change may still take effect",
	},
	{cluster.ErrNotMember, http.StatusNotFound, CodeNotMember, "no member has this id; /v1/members lists the members", ""},
	{
		cluster.ErrLastCandidate, http.StatusConflict, CodeLastCandidate,
		"no other member could own anything: all are draining, settling or cordoned, or have weight 0", "",
	},
	{cluster.ErrCordons, http.StatusConflict, CodeCordons, "too many nodes are cordoned: end a cordon, or wait until one ends", ""},
	{
		cluster.ErrLoadComputed, http.StatusConflict, CodeLoadComputed,
		"this agent computes its load from its rooms (--report-load), so it does not accept units",
		": do not post units, or restart the agent without --report-load",
	},
	{cluster.ErrSealed, http.StatusConflict, CodeSealed, "this node encrypts, and can send or accept plain text only after a restart", ""},
	{cluster.ErrUnknownKey, http.StatusNotFound, CodeUnknownKey, "", ""},
	{cluster.ErrKeyLacking, http.StatusConflict, CodeKeyLacking, "", "; install it there first, or wait until their records have spread"},
	{cluster.ErrKeyInUse, http.StatusConflict, CodeKeyInUse, "", ""},
	{cluster.ErrManyKeys, http.StatusConflict, CodeManyKeys, "", ""},
	{
		cluster.ErrFenced, http.StatusServiceUnavailable, CodeNotReady,
		"this node's own lease expired, because the process was paused or could not send; it rejoins by itself",
		"; try again in a second",
	},
	{affinity.ErrClosed, http.StatusServiceUnavailable, CodeClosed, "this node is leaving and no longer hosts rooms", ""},
}

// Is makes errors.Is match a Problem with the error that the agent's Go methods return.
func (p *Problem) Is(target error) bool {
	for _, k := range kinds {
		if k.code == p.Code {
			return target == k.err
		}
	}
	return false
}

func problem(status int, code, format string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, CodeBadRequest, format, args...)
}

func internal(err error) *Problem {
	return problem(http.StatusInternalServerError, CodeInternal, "%s", err)
}

// problemOf converts an error of the agent or of its rooms to a Problem.
func (a *api) problemOf(err error) *Problem {
	if why := a.agent.Err(); why != nil && errors.Is(err, cluster.ErrClosed) {
		return problem(http.StatusServiceUnavailable, CodeClosed, "the agent has stopped: %s", why)
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return problem(k.status, k.code, "%s", cmp.Or(k.message, bare(err))+k.advice)
		}
	}
	return internal(err)
}

// write sends p as the response.
func (p *Problem) write(w http.ResponseWriter) {
	switch {
	case p.Status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case p.Code == CodeUnauthorized:
		w.Header().Add("WWW-Authenticate", `Bearer realm="roost"`)
	}
	writeJSON(w, p.Status, p)
}
