package clusterhttp

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// report records that the application next to this agent is healthy. The log does not contain reports, because they are
// too frequent.
func (a *api) report(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		TTL *int64 `json:"ttl_ms"`
	}
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	if body.TTL == nil {
		return nil, badRequest(`ttl_ms is missing: send {"ttl_ms":N}`)
	}
	least, most := cluster.MinHealthTTL.Milliseconds(), cluster.MaxHealthTTL.Milliseconds()
	if ttl := *body.TTL; ttl != 0 && (ttl < least || ttl > most) {
		return nil, badRequest("ttl_ms is %d; it must be 0, or %d to %d", ttl, least, most)
	}
	before := a.agent.Snapshot().Self.State
	if err := a.agent.ReportHealth(time.Duration(*body.TTL) * time.Millisecond); err != nil {
		return nil, a.problemOf(err)
	}
	c := a.changed()
	c.Converged = c.State == before && a.agent.Converged() // a changed state has not spread yet
	return c, nil
}

// cordon keeps a member from owning anything. All members honor the cordon.
func (a *api) cordon(w http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		ID     lease.NodeID `json:"id"`
		ForMS  *int64       `json:"for_ms"`
		Reason string       `json:"reason"`
	}
	most := lease.MaxCordonTime.Milliseconds()
	wait, p := waitOf(r)
	if p == nil {
		p = decode(r, &body)
	}
	switch {
	case p != nil:
		return nil, p
	case body.ID == "" || body.ForMS == nil:
		return nil, badRequest(`id or for_ms is missing: send {"id":ID,"for_ms":N}`)
	case *body.ForMS < 1 || *body.ForMS > most:
		return nil, badRequest("for_ms is %d; it must be 1 to %d; DELETE ends a cordon", *body.ForMS, most)
	case len(body.Reason) > lease.MaxReasonBytes || !utf8.ValidString(body.Reason) || strings.ContainsFunc(body.Reason, unicode.IsControl):
		return nil, badRequest("reason must be one line of at most %d bytes", lease.MaxReasonBytes)
	}
	d := time.Duration(*body.ForMS) * time.Millisecond
	converged, p := a.perform(w, r, wait, func(ctx context.Context) error { return a.agent.Cordon(ctx, body.ID, d, body.Reason) })
	if p != nil {
		return nil, p
	}
	return &Cordoned{Cordon: Cordon{ID: body.ID, ForMS: *body.ForMS, Reason: body.Reason}, Converged: converged}, nil
}

// uncordon ends the cordon of a member.
func (a *api) uncordon(w http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		ID lease.NodeID `json:"id"`
	}
	wait, p := waitOf(r)
	if p == nil {
		p = decode(r, &body)
	}
	switch {
	case p != nil:
		return nil, p
	case body.ID == "":
		return nil, badRequest(`id is missing: send {"id":ID}`)
	}
	converged, p := a.perform(w, r, wait, func(ctx context.Context) error { return a.agent.Uncordon(ctx, body.ID) })
	if p != nil {
		return nil, p
	}
	return &Cordoned{Cordon: Cordon{ID: body.ID}, Converged: converged}, nil
}

// cordons returns the active cordons.
func cordons(s *cluster.Snapshot) []Cordon {
	all := make([]Cordon, len(s.Cordons))
	for i, c := range s.Cordons {
		all[i] = cordonOf(c)
	}
	return all
}

func cordonOf(c cluster.Cordon) Cordon {
	return Cordon{ID: c.ID, ForMS: max(0, time.Until(c.Until).Milliseconds()), Reason: c.Reason}
}
