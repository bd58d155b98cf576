package clusterhttp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds what a Client reads of one answer or event, in bytes. The
// largest that an agent gives, 65,536 partitions with long node ids, takes 4 MB, and
// 2 kB a node with many labels.
const maxAnswer = 32 << 20

// DefaultBase is where an agent serves HTTP unless told otherwise.
const DefaultBase = "127.0.0.1:8401"

// Client asks one agent over HTTP. The zero value asks one on this machine. All
// its methods may be called from any goroutine while its fields stay as they are.
//
// Errors are a *[Problem] if the agent answered with one, ctx.Err() wrapped if
// ctx ended, and otherwise say where no agent answers, or none that makes sense.
type Client struct {
	// Base is the host:port of the agent, or a URL, with a path if the API is
	// mounted below one. Default DefaultBase.
	Base string

	// Token is sent with calls that change the node. It is readable on the way
	// unless Base is https or on this machine.
	Token string

	// HTTP makes the requests. Default http.DefaultClient. Its Timeout should be
	// 0, for it would end every stream of Events; a context bounds the calls.
	HTTP *http.Client
}

// Place returns the owner of key.
func (c *Client) Place(ctx context.Context, key string) (Placed, error) {
	return ask[Placed](ctx, c, http.MethodGet, "/v1/place?"+url.Values{"key": {key}}.Encode(), nil)
}

// Owners returns the n best members for key, 1 to 100, the owner first.
func (c *Client) Owners(ctx context.Context, key string, n int) (Ranked, error) {
	query := url.Values{"key": {key}, "n": {strconv.Itoa(n)}}
	return ask[Ranked](ctx, c, http.MethodGet, "/v1/owners?"+query.Encode(), nil)
}

// Members returns the live members as the agent sees them.
func (c *Client) Members(ctx context.Context) (Members, error) {
	return ask[Members](ctx, c, http.MethodGet, "/v1/members", nil)
}

// Partitions returns the owner of every partition, as a table to be kept, compared
// (placement.Diff) or planned with.
func (c *Client) Partitions(ctx context.Context) (Partitions, error) {
	return ask[Partitions](ctx, c, http.MethodGet, "/v1/partitions", nil)
}

// Owned returns what the agent's own node owns.
func (c *Client) Owned(ctx context.Context) (Owned, error) {
	return ask[Owned](ctx, c, http.MethodGet, "/v1/owned", nil)
}

// Stats returns what the agent has counted since it was started, and the settings
// that it runs with.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return ask[Stats](ctx, c, http.MethodGet, "/v1/stats", nil)
}

// Drain has the node give up what it owns, and waits until every member has
// agreed, for nine tenths of the time that ctx leaves: 60 s at most, 10 s if ctx
// has no deadline. If that was too short, Converged is false and the draining
// goes on.
func (c *Client) Drain(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/drain?wait="+patience(ctx), nil)
}

// Undrain is the reverse of Drain, and waits likewise.
func (c *Client) Undrain(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/undrain?wait="+patience(ctx), nil)
}

// Leave has the node leave the cluster. It returns when the agent has agreed to;
// the leaving takes a moment more.
func (c *Client) Leave(ctx context.Context) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/leave", nil)
}

// SetLoad sets the units of load that the node reports.
func (c *Client) SetLoad(ctx context.Context, units int64) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/load", map[string]int64{"units": units})
}

// SetWeight changes the node's share relative to others.
func (c *Client) SetWeight(ctx context.Context, w uint32) (Changed, error) {
	return ask[Changed](ctx, c, http.MethodPost, "/v1/weight", map[string]uint32{"weight": w})
}

// Ready returns nil if the node is ready to serve, or a *Problem whose State says
// what it does instead.
func (c *Client) Ready(ctx context.Context) error {
	_, err := ask[status](ctx, c, http.MethodGet, "/readyz", nil)
	return err
}

// patience returns how long the agent should wait, so that its answer still
// comes in time.
func patience(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultWait.String()
	}
	return min(max(0, time.Until(deadline)*9/10), maxWait).String()
}

// ask makes one call and decodes its answer.
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
		return answer, fmt.Errorf("clusterhttp: what %s answers to %s is not from an agent: %w", c.where(), target, err)
	}
	return answer, nil
}

// send makes a request and returns a response of status 2xx.
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
	if c.Token != "" && method != http.MethodGet {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := cmp.Or(c.HTTP, http.DefaultClient).Do(r)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.problem(resp)
	}
	return resp, nil
}

// problem returns the error that an answer stands for.
func (c *Client) problem(resp *http.Response) error {
	p := new(Problem)
	b, err := readAll(resp.Body)
	if err != nil || json.Unmarshal(b, p) != nil || p.Code == "" {
		p = &Problem{Code: CodeInternal, Message: fmt.Sprintf("%s answers %s and does not say why: is it an agent?", c.where(), resp.Status)}
	}
	p.Status = resp.StatusCode
	return p
}

// failed says that there was no answer, and whose fault that is.
func (c *Client) failed(ctx context.Context, err error) error {
	if failure, ok := errors.AsType[*url.Error](err); ok {
		err = failure.Err // without the URL again
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("clusterhttp: no answer yet from %s: %w", c.where(), cause)
	}
	return fmt.Errorf("clusterhttp: no agent answers at %s: is it running, and is that its HTTP address? %w", c.where(), err)
}

// base returns Base as a URL without a slash at its end.
func (c *Client) base() (string, error) {
	base := c.where()
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("clusterhttp: %q is neither host:port nor the URL of an agent", c.Base)
	}
	return strings.TrimSuffix(base, "/"), nil
}

func (c *Client) where() string { return cmp.Or(c.Base, DefaultBase) }

// readAll reads what a bounded answer may have.
func readAll(body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d MB", maxAnswer>>20)
	}
	return b, err
}
