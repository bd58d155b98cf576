package clusterhttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

const (
	defaultWait = 10 * time.Second
	maxWait     = 10 * time.Minute
	toLoop      = 50 * time.Millisecond // until a change has reached the agent's loop
	minToLoop   = time.Second           // if the caller does not wait
)

// drain releases the node's partitions. If the body has rooms, drain also moves the node's rooms.
func (a *api) drain(w http.ResponseWriter, r *http.Request) (any, *Problem) {
	wait, p := waitOf(r)
	if p != nil {
		return nil, p
	}
	plan, p := a.planOf(r)
	if p != nil {
		return nil, p
	}
	if plan != nil {
		a.evacuate(*plan)
	}
	return a.change(w, r, wait, a.agent.Drain)
}

func (a *api) undrain(w http.ResponseWriter, r *http.Request) (any, *Problem) {
	wait, p := waitOf(r)
	if p == nil {
		p = decode(r, &struct{}{})
	}
	if p != nil {
		return nil, p
	}
	a.evacuation.end()
	return a.change(w, r, wait, a.agent.Undrain)
}

// change makes a change with the function do, which is Drain or Undrain of the agent.
func (a *api) change(w http.ResponseWriter, r *http.Request, wait time.Duration, do func(context.Context) error) (any, *Problem) {
	converged, p := a.perform(w, r, wait, do)
	if p != nil {
		return nil, p
	}
	c := a.changed()
	c.Converged = converged
	if a.rooms != nil {
		c.Evacuation = a.rooms.Stats().Evacuation
	}
	return c, nil
}

// perform makes the change by calling the function do. It waits until all members have agreed to the change, but at
// most for the duration wait. If the caller disconnects or does not wait, the change continues, because do runs in a
// separate goroutine with its own deadline.
func (a *api) perform(
	w http.ResponseWriter,
	r *http.Request,
	wait time.Duration,
	do func(context.Context) error,
) (converged bool, _ *Problem) {
	a.audit(r)
	// The server's WriteTimeout must not cut off a response after a long wait.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + a.sendTime))

	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), max(wait, minToLoop))
	result := make(chan error, 1)
	go func() {
		defer cancel()
		result <- do(ctx)
	}()
	timeout := time.NewTimer(max(wait, toLoop))
	defer timeout.Stop()
	stop, _ := r.Context().Value(stopKey{}).(<-chan struct{})
	select {
	case err := <-result:
		if converged = err == nil; !converged && !errors.Is(err, context.DeadlineExceeded) {
			return false, a.problemOf(err)
		}
	case <-timeout.C:
	case <-stop: // the server shuts down
		time.AfterFunc(minToLoop, cancel)
	case <-r.Context().Done():
		time.AfterFunc(minToLoop, cancel) // the caller no longer waits
	}
	return converged, nil
}

// leave responds before the agent has left, because the server may no longer run afterwards.
func (a *api) leave(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	if p := decode(r, &struct{}{}); p != nil {
		return nil, p
	}
	a.audit(r)
	before := a.changed() // respond with the state before the leave
	a.leaving.Do(func() {
		go func() {
			if err := a.agent.Leave(context.Background()); err != nil && !errors.Is(err, cluster.ErrClosed) {
				a.log.Warn("leave incomplete", "err", err)
			}
		}()
	})
	return before, nil
}

// setLoad sets the load in units, the use of resources, or both. If one of them is refused, neither is set.
func (a *api) setLoad(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		Units *int64           `json:"units"`
		Use   map[string]int64 `json:"use"`
	}
	switch p := decode(r, &body); {
	case p != nil:
		return nil, p
	case body.Units == nil && body.Use == nil:
		return nil, badRequest(`units and use are missing: send {"units":N} or {"use":{"cpu":N}}, or both`)
	case body.Units != nil && *body.Units < 0:
		return nil, badRequest("units is %d; it must not be negative", *body.Units)
	case body.Units != nil && a.agent.Load().Computed:
		return nil, a.problemOf(cluster.ErrLoadComputed)
	}
	if body.Use != nil {
		if err := a.agent.SetUse(body.Use); err != nil {
			return nil, badRequest("%s", strings.TrimPrefix(err.Error(), "cluster: "))
		}
	}
	if body.Units != nil {
		if err := a.agent.SetLoad(*body.Units); err != nil {
			return nil, a.problemOf(err)
		}
	}
	c := a.changed()
	c.Load = a.agent.Load().Total() // the next heartbeat reports it
	c.Converged = a.agent.Converged()
	return c, nil
}

func (a *api) setWeight(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		Weight *int64 `json:"weight"`
	}
	switch p := decode(r, &body); {
	case p != nil:
		return nil, p
	case body.Weight == nil:
		return nil, badRequest(`weight is missing: send {"weight":N}`)
	case *body.Weight < 0 || *body.Weight > lease.MaxWeight:
		return nil, badRequest("weight is %d; it must be 0 to %d", *body.Weight, lease.MaxWeight)
	}
	a.audit(r)
	weight := uint32(*body.Weight)
	c := a.changed()
	c.Converged = weight == c.Weight && a.agent.Converged() // a changed weight has not spread yet
	c.Weight = weight
	// If no table with the new weight is ready before the deadline, the weight is set, but the members have
	// not agreed yet.
	if err := a.agent.SetWeight(weight); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, a.problemOf(err)
	}
	return c, nil
}

// keyPrint matches a fingerprint of cluster.KeyFingerprint.
var keyPrint = regexp.MustCompile(`^([0-9a-f]{8}|` + cluster.PlainText + `)$`)

// changeKeys makes one step of a change of the gossip key, on this node only. A request with install contains
// a key, but no response contains a key.
func (a *api) changeKeys(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	if !a.guard.guardChanges && !certified(r) { // otherwise any process on this machine could call it
		return nil, problem(http.StatusForbidden, CodeForbidden,
			"only callers with a token may change gossip keys: give the agent a token (--http-token-file)")
	}
	step, p := a.keyStep(r)
	if p != nil {
		return nil, p
	}
	a.audit(r)
	before := a.agent.KeyFingerprints()
	if err := step(); err != nil {
		return nil, a.problemOf(err)
	}
	k := &Keys{Self: a.self, Keys: a.agent.KeyFingerprints(), Unsaved: a.unsaved()}
	if !slices.Equal(before, k.Keys) {
		a.log.Info("gossip keys changed by a call", "sends_with", k.Keys[0], "accepts", k.Keys[1:])
	}
	if k.Unsaved != "" {
		a.log.Warn("gossip keys are not saved", "why", k.Unsaved)
	}
	return k, nil
}

// keyStep returns a function that makes the requested step.
func (a *api) keyStep(r *http.Request) (func() error, *Problem) {
	var body struct {
		Install string `json:"install"` // base64
		Use     string `json:"use"`     // fingerprints
		Remove  string `json:"remove"`
	}
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	given := slices.DeleteFunc([]string{body.Install, body.Use, body.Remove}, func(v string) bool { return v == "" })
	if len(given) != 1 {
		return nil, badRequest(`send one of {"install":KEY}, {"use":FINGERPRINT} and {"remove":FINGERPRINT}`)
	}
	if body.Install != "" {
		key, err := base64.StdEncoding.DecodeString(body.Install)
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, badRequest("install must be a key of 16, 24 or 32 bytes in base64")
		}
		return func() error { return a.agent.InstallKey(key) }, nil
	}
	if !keyPrint.MatchString(given[0]) {
		return nil, badRequest("the fingerprint of a key has 8 hexadecimal digits, as in keys of /v1/members, or is plain, for plain text")
	}
	if body.Use != "" {
		return func() error { return a.agent.UseKey(body.Use) }, nil
	}
	return func() error { return a.agent.RemoveKey(body.Remove) }, nil
}

// unsaved saves the gossip keys for the next start. If saving fails, unsaved returns the reason, and
// otherwise "".
func (a *api) unsaved() string {
	if a.saveKeys == nil {
		return "this process does not save keys that a call changes"
	}
	if err := a.saveKeys(); err != nil {
		return err.Error()
	}
	return ""
}

// certified reports whether the client has a certificate from a CA that the server trusts for clients.
func certified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

func (a *api) changed() *Changed {
	self := a.agent.Snapshot().Self
	return &Changed{Self: a.self, State: self.State, Weight: self.Weight, Load: max(0, self.Load)}
}

// audit logs the caller of a change. Load reports are not logged, because they are too frequent.
func (a *api) audit(r *http.Request) {
	a.log.Info("change requested", "path", r.URL.Path, "remote", r.RemoteAddr)
}

func waitOf(r *http.Request) (time.Duration, *Problem) {
	return durationOf(r, "wait", defaultWait, 0, maxWait)
}

// durationOf returns a parameter, which must be between least and most. If the parameter is missing,
// durationOf returns the value of missing.
func durationOf(r *http.Request, name string, missing, least, most time.Duration) (time.Duration, *Problem) {
	text, p := param(r.URL.RawQuery, name)
	if p != nil || text == "" {
		return missing, p
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, badRequest("%s is %.20q; it must be %.4gs to %.4gs, such as 500ms or 10s", name, text, least.Seconds(), most.Seconds())
	}
	return d, nil
}

// decode reads the request's body, which must be a JSON object without unknown fields. A request without a
// body leaves into unchanged.
//
// The content type is mandatory to prevent forged requests. A form on any web page can send a body to this
// server, but a browser sends this content type to another origin only after a preflight.
func decode(r *http.Request, into any) *Problem {
	if r.ContentLength == 0 {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	_, tooBig := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooBig:
		p := badRequest("the body has more than %d bytes", maxBody)
		p.Status = http.StatusRequestEntityTooLarge
		return p
	case err != nil:
		return badRequest("the body cannot be read: %v", err)
	case len(b) == 0:
		return nil
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		p := badRequest("the body must be JSON, with Content-Type: application/json")
		p.Status = http.StatusUnsupportedMediaType
		return p
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest("the body: %s", wrongField(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body has data after its JSON object")
	}
	return nil
}

// wrongField returns a message that describes the wrong field in terms of JSON instead of Go.
func wrongField(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	field, want := strings.TrimPrefix(wrong.Field, "Demand."), "a whole number" // Demand is embedded in roomDemand
	if field == "" {
		return "it must be a JSON object, not " + wrong.Value
	}
	kind := wrong.Type.Kind()
	if kind == reflect.String {
		return field + " must be a string, not a " + wrong.Value
	}
	if other, ok := map[reflect.Kind]string{
		reflect.Slice:  "a list",
		reflect.Map:    "an object",
		reflect.Struct: "an object",
		reflect.Bool:   "true or false",
	}[kind]; ok {
		want = other
	}
	return fmt.Sprintf("%s must be %s, not %.80s", field, want, strings.TrimPrefix(wrong.Value, "number "))
}
