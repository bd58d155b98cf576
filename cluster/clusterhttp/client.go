package clusterhttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/internal/agenturl"
	"github.com/roost-cluster/roost/lease"
)

// maxAnswer is the maximum size of a response or event, in bytes. The largest response of an agent has 65,536
// partitions and long node ids. Such a response takes 4 MB, plus 2 kB for each node with many labels.
const maxAnswer = 32 << 20

// DefaultBase is the default address of an agent's HTTP API.
const DefaultBase = "127.0.0.1:8401"

// Client calls an agent over HTTP. The zero value calls an agent on this machine. The methods are safe for
// concurrent use, but don't change the fields at the same time.
//
// If the agent responds with a problem, the error is a *[Problem]. If ctx ends first, the error wraps
// ctx.Err(). Any other error names the address that did not return a valid response.
type Client struct {
	// Base is the host:port or the URL of the agent. If the API is mounted under a path, use a URL with that
	// path. Default DefaultBase.
	Base string

	// Token is sent with each call. If Base is another machine and does not use https, anyone on the network
	// can read the token.
	Token string

	// Scope, if set, limits Place, Owners, Partitions, Owned and Events to a scope of the agent
	// ([cluster.Agent.Scope], or roost agent --scope). These methods fail with CodeNoScope if the agent has
	// no such scope. To use several scopes, copy the Client.
	Scope string

	// HTTP sends the requests. Default http.DefaultClient. The Timeout of HTTP should be 0, because any other
	// value would end every stream of Events. To limit the time of a call, set a deadline in its context. The
	// Client follows redirects only if HTTP has a CheckRedirect.
	HTTP *http.Client
}

// Place returns the owner of key.
func (c *Client) Place(ctx context.Context, key string) (Placed, error) {
	return ask[Placed](ctx, c, http.MethodGet, c.scoped("/v1/place", url.Values{"key": {key}}), nil)
}

// Owners returns the n best members for key, the owner first. n is 1 to 100.
func (c *Client) Owners(ctx context.Context, key string, n int) (Ranked, error) {
	query := url.Values{"key": {key}, "n": {strconv.Itoa(n)}}
	return ask[Ranked](ctx, c, http.MethodGet, c.scoped("/v1/owners", query), nil)
}

// Members returns the live members as the agent sees them.
func (c *Client) Members(ctx context.Context) (Members, error) {
	return ask[Members](ctx, c, http.MethodGet, "/v1/members", nil)
}

// Partitions returns the table with the owner of every partition. You can store the table, compare it with
// another table (placement.Diff), or use it for planning.
func (c *Client) Partitions(ctx context.Context) (Partitions, error) {
	return ask[Partitions](ctx, c, http.MethodGet, c.scoped("/v1/partitions", url.Values{}), nil)
}

// Owned returns the partitions of the agent's own node.
func (c *Client) Owned(ctx context.Context) (Owned, error) {
	return ask[Owned](ctx, c, http.MethodGet, c.scoped("/v1/owned", url.Values{}), nil)
}

// Stats returns the counters of the agent since its start, and its settings.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return ask[Stats](ctx, c, http.MethodGet, "/v1/stats", nil)
}

// History returns what the agent has seen since its start: its last events, and samples of the last half
// hour.
func (c *Client) History(ctx context.Context) (History, error) {
	return ask[History](ctx, c, http.MethodGet, "/v1/history", nil)
}

// Doctor returns the problems that the agent finds in itself and its cluster. The agent checks twice. over is
// the time between the two checks, at most 5 s.
func (c *Client) Doctor(ctx context.Context, over time.Duration) (doctor.Diagnosis, error) {
	return ask[doctor.Diagnosis](ctx, c, http.MethodGet, "/v1/doctor?"+url.Values{"over": {over.String()}}.Encode(), nil)
}

// Drain makes the node release its partitions, and waits until every member has agreed. The wait lasts at
// most nine tenths of the time until ctx's deadline, and at most ten minutes. If ctx has no deadline, the
// wait lasts at most 10 s. If the wait times out, Converged is false and draining continues.
func (c *Client) Drain(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/drain?wait="+waitWithin(ctx), nil)
}

// Evacuate drains the node like Drain, and also moves its rooms to other nodes. The rooms move at rate rooms
// per second, or faster if the deadline requires it. If rate or deadline is 0, the default of package
// evacuate is used. Evacuate does not wait until the rooms have moved. Stats returns the progress. A second
// call replaces the rate and the deadline.
func (c *Client) Evacuate(ctx context.Context, rate int, deadline time.Duration) (Changed, error) {
	ms, err := millisOf("deadline", deadline)
	if err != nil {
		return Changed{}, err
	}
	rooms := map[string]int64{"rate": int64(rate), "deadline_ms": ms}
	return ask[Changed](ctx, c, http.MethodPost, "/v1/drain?wait="+waitWithin(ctx), map[string]any{"rooms": rooms})
}

// Undrain reverses Drain, and waits in the same way.
func (c *Client) Undrain(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/undrain?wait="+waitWithin(ctx), nil)
}

// Leave makes the node leave the cluster. Leave returns as soon as the agent accepts the call. The node
// leaves shortly afterwards.
func (c *Client) Leave(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/leave", nil)
}

// SetLoad sets the units of load that the node reports. SetLoad fails with cluster.ErrLoadComputed if the
// agent computes its load.
func (c *Client) SetLoad(ctx context.Context, units int64) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/load", map[string]int64{"units": units})
}

// SetUse sets how much of the node's resources is in use, by name. See [cluster.Agent.SetUse].
func (c *Client) SetUse(ctx context.Context, use map[string]int64) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/load", map[string]map[string]int64{"use": use})
}

// SetWeight changes the node's share of the partitions relative to other nodes.
func (c *Client) SetWeight(ctx context.Context, w uint32) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/weight", map[string]uint32{"weight": w})
}

// ReportHealth reports that the application of the node is healthy. If the next report does not arrive within
// ttl, the node drains. With a ttl of 0, the agent expects no further report.
func (c *Client) ReportHealth(ctx context.Context, ttl time.Duration) (Changed, error) {
	ms, err := millisOf("ttl", ttl)
	if err != nil {
		return Changed{}, err
	}
	return ask[Changed](ctx, c, http.MethodPost, "/v1/health", map[string]int64{"ttl_ms": ms})
}

// Cordon keeps a member from owning anything, until d has passed or Uncordon is called. All members honor the cordon.
// Cordon waits like Drain.
func (c *Client) Cordon(ctx context.Context, id lease.NodeID, d time.Duration, reason string) (Cordoned, error) {
	ms, err := millisOf("the time of a cordon", d)
	if err != nil {
		return Cordoned{}, err
	}
	return ask[Cordoned](ctx, c, http.MethodPost, "/v1/cordon?wait="+waitWithin(ctx), Cordon{ID: id, ForMS: ms, Reason: reason})
}

// Uncordon ends the cordon of a member. It waits like Drain.
func (c *Client) Uncordon(ctx context.Context, id lease.NodeID) (Cordoned, error) {
	return ask[Cordoned](ctx, c, http.MethodDelete, "/v1/cordon?wait="+waitWithin(ctx), map[string]lease.NodeID{"id": id})
}

// InstallKey makes the node accept another gossip key. The node does not send with the key yet. If Base is
// another machine and does not use https, anyone on the network can read the key.
func (c *Client) InstallKey(ctx context.Context, key []byte) (Keys, error) {
	return ask[Keys](ctx, c, http.MethodPost, "/v1/keys", map[string]string{"install": base64.StdEncoding.EncodeToString(key)})
}

// UseKey makes the node send with the gossip key that has this fingerprint. All live members must already
// accept the key.
func (c *Client) UseKey(ctx context.Context, fingerprint string) (Keys, error) {
	return ask[Keys](ctx, c, http.MethodPost, "/v1/keys", map[string]string{"use": fingerprint})
}

// RemoveKey makes the node stop accepting the gossip key that has this fingerprint. RemoveKey fails if a live
// member still sends with the key.
func (c *Client) RemoveKey(ctx context.Context, fingerprint string) (Keys, error) {
	return ask[Keys](ctx, c, http.MethodPost, "/v1/keys", map[string]string{"remove": fingerprint})
}

// millisOf converts a duration to milliseconds. A duration between 0 and 1 ms is an error, because 0 has a special
// meaning in the API.
func millisOf(what string, d time.Duration) (int64, error) {
	if ms := d.Milliseconds(); ms != 0 || d == 0 {
		return ms, nil
	}
	return 0, fmt.Errorf("clusterhttp: %s is %v; it must be 0 or at least 1ms", what, d)
}

// Ready returns nil if the node is ready to serve. Otherwise Ready returns a *Problem with the State of the
// node.
func (c *Client) Ready(ctx context.Context) error {
	_, err := ask[status](ctx, c, http.MethodGet, "/readyz", nil)
	return err
}

// waitWithin returns how long the agent can wait, so that its response still arrives before the deadline of ctx.
func waitWithin(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultWait.String()
	}
	return min(max(0, time.Until(deadline)*9/10), maxWait).String()
}

// scoped returns the path and query of a call, including c.Scope if it is set.
func (c *Client) scoped(path string, query url.Values) string {
	if c.Scope != "" {
		query.Set("scope", c.Scope)
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// ask makes one call and decodes the response.
func ask[T any](ctx context.Context, c *Client, method, target string, body any) (answer T, _ error) {
	resp, err := c.send(ctx, method, target, body)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := readAll(resp.Body)
	if err != nil {
		return answer, c.failed(ctx, err)
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return answer, fmt.Errorf("clusterhttp: unexpected response from %s to %s: is it a roost agent? %w", c.where(), target, err)
	}
	return answer, nil
}

// send makes a request. If the status is not 2xx, send returns an error.
func (c *Client) send(ctx context.Context, method, target string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("clusterhttp: %w", err)
		}
		content = bytes.NewReader(b)
	}
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, base+target, content)
	if err != nil {
		return nil, fmt.Errorf("clusterhttp: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.stays().Do(r)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.problem(resp)
	}
	return resp, nil
}

// stays returns an HTTP client that does not follow redirects by default. Agents never redirect, and a client that
// followed a redirect would send the token to another server.
func (c *Client) stays() *http.Client {
	own := *cmp.Or(c.HTTP, http.DefaultClient)
	if own.CheckRedirect == nil {
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &own
}

// problem converts a response with an error status to a *Problem.
func (c *Client) problem(resp *http.Response) error {
	p := new(Problem)
	b, err := readAll(resp.Body)
	switch {
	case resp.StatusCode/100 == 3:
		p = &Problem{
			Code:    CodeBadRequest,
			Message: fmt.Sprintf("%s redirects to %.200s: use that address if it is the agent's", c.where(), resp.Header.Get("Location")),
		}
	case bytes.HasPrefix(b, []byte("Client sent an HTTP request to an HTTPS server")): // the text of net/http
		p = &Problem{Code: CodeBadRequest, Message: c.where() + " speaks https: put https:// in front of its address"}
	case err != nil || json.Unmarshal(b, p) != nil || p.Code == "":
		p = &Problem{Code: CodeInternal, Message: fmt.Sprintf("unexpected response from %s: %s: is it a roost agent?", c.where(), resp.Status)}
	}
	p.Status = resp.StatusCode
	return p
}

// failed returns an error with advice for a call that received no response or only part of a response.
func (c *Client) failed(ctx context.Context, err error) error {
	if failure, ok := errors.AsType[*url.Error](err); ok {
		err = failure.Err // the messages below already name the address
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("clusterhttp: no response yet from %s: %w", c.where(), cause)
	}
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return fmt.Errorf("clusterhttp: this client does not trust the certificate of %s: %w", c.where(), err)
	}
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		return fmt.Errorf("clusterhttp: %s rejects this client's certificate or TLS settings: %w", c.where(), err)
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return fmt.Errorf("clusterhttp: %s does not speak https: %w", c.where(), err)
	}
	return fmt.Errorf("clusterhttp: no agent answers at %s: is it running, and is that its HTTP address? %w", c.where(), err)
}

// base returns Base as a URL without a trailing slash.
func (c *Client) base() (string, error) {
	base, err := agenturl.Parse(cmp.Or(c.Base, DefaultBase))
	if err != nil {
		return "", fmt.Errorf("clusterhttp: %w", err)
	}
	return base, nil
}

func (c *Client) where() string { return agenturl.Shown(cmp.Or(c.Base, DefaultBase)) }

// readAll reads a whole response. A response that is larger than maxAnswer is an error.
func readAll(body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("the response has more than %d MB", maxAnswer>>20)
	}
	return b, err
}
