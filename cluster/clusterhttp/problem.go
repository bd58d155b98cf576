package clusterhttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster"
)

// Problem is the body of every error response, and the error that [Client] returns for
// it. By errors.Is it equals the error of its code:
// cluster.ErrNotReady, cluster.ErrNoMembers, cluster.ErrClosed, cluster.ErrStalled, cluster.ErrNotMember,
// cluster.ErrLastCandidate, cluster.ErrEvictions, pinstore.ErrStore,
// affinity.ErrNoCapacity, affinity.ErrNoPin, affinity.ErrNotLive,
// affinity.ErrChanged, affinity.ErrSettings.
type Problem struct { //nolint:errname // it is the body of a response in the first place
	Message string `json:"error"`
	Code    string `json:"code"`            // one of the Code constants
	State   string `json:"state,omitempty"` // of /readyz: joining, settling, isolated, ill, held, evicted, draining or left

	Status int `json:"-"` // of the HTTP response
}

// The codes of a Problem.
const (
	CodeBadRequest   = "bad_request"
	CodeNotFound     = "not_found"
	CodeMethod       = "method_not_allowed"
	CodeNotReady     = "not_ready"
	CodeNoMembers    = "no_members"
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden" // cross-origin
	CodeBusy         = "busy"      // too many event streams
	CodeClosed       = "closed"
	CodeStalled      = "stalled" // the agent's loop stands still
	CodeInternal     = "internal"

	// About evictions.
	CodeNotMember     = "not_member"     // no member has the id
	CodeLastCandidate = "last_candidate" // no other member could own anything
	CodeEvictions     = "too_many_evictions"

	// About rooms.
	CodeNoStore    = "no_store"          // the agent has no store of pins
	CodeStore      = "store_unavailable" // the store does not respond
	CodeSettings   = "settings_differ"   // other nodes over the store have other settings
	CodeNoCapacity = "no_capacity"       // no node has capacity for the room
	CodeRequire    = "no_match"          // no node meets what the room requires
	CodeNoPin      = "no_pin"            // the room is not pinned
	CodeNotLive    = "not_live"          // the target node accepts no rooms
	CodeChanged    = "changed"           // another caller moved the room at the same time
)

// Error returns the message and the code.
func (p *Problem) Error() string { return p.Message + " (" + p.Code + ")" }

// Is makes errors.Is treat a Problem like the error of an embedded agent.
func (p *Problem) Is(target error) bool {
	err, ok := map[string]error{
		CodeNotReady: cluster.ErrNotReady, CodeNoMembers: cluster.ErrNoMembers, CodeClosed: cluster.ErrClosed,
		CodeNotMember: cluster.ErrNotMember, CodeLastCandidate: cluster.ErrLastCandidate, CodeEvictions: cluster.ErrEvictions,
		CodeStalled: cluster.ErrStalled,
		CodeStore:   pinstore.ErrStore, CodeNoCapacity: affinity.ErrNoCapacity, CodeRequire: affinity.ErrRequire, CodeNoPin: affinity.ErrNoPin,
		CodeNotLive: affinity.ErrNotLive, CodeChanged: affinity.ErrChanged, CodeSettings: affinity.ErrSettings,
	}[p.Code]
	return ok && target == err
}

func badRequest(format string, args ...any) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

func internal(err error) *Problem {
	return &Problem{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error()}
}

// problemOf translates the error of a lookup or a change.
func (a *api) problemOf(err error) *Problem {
	unavailable := func(code, message string) *Problem {
		return &Problem{Status: http.StatusServiceUnavailable, Code: code, Message: message}
	}
	if p := problemOfEvict(err); p != nil {
		return p
	}
	switch {
	case errors.Is(err, cluster.ErrNotReady):
		return unavailable(CodeNotReady, "this node has not computed a table yet; try again in a second")
	case errors.Is(err, cluster.ErrNoMembers):
		return unavailable(CodeNoMembers, "no member can own anything: all are draining, settling or of weight 0")
	case errors.Is(err, cluster.ErrClosed):
		if why := a.agent.Err(); why != nil {
			return unavailable(CodeClosed, "the agent has stopped: "+why.Error())
		}
		return unavailable(CodeClosed, "the agent has left or was closed")
	case errors.Is(err, cluster.ErrStalled):
		return unavailable(CodeStalled, "the agent's loop stands still: a strategy does not return, or the process gets no CPU; the change may still take effect")
	default:
		return internal(err)
	}
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
