package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agenturl"
	"github.com/roost-cluster/roost/lease"
)

// Resolve asks an agent to call affinity.Resolver.Resolve. Resolve returns the node of a room, and pins the
// room to a node if it has none. size is the lowest expected number of participants, or 0. The agent does not
// host the room. The application on the room's node hosts the room when a participant arrives there. With a
// fixed size, this method can serve as the Resolve of a reconnect.Driver. If the store does not answer the
// agent, the directive has Epoch 0 and names the agent's best guess.
//
// Resolve tries the agent that the Client follows, and then the others, each once and for at most
// Config.IdleTimeout. The error is an *[AgentError] if the last agent answered, and wraps ctx.Err() if ctx
// ended.
func (c *Client) Resolve(ctx context.Context, room string, size int) (reconnect.Directive, error) {
	body, err := json.Marshal(map[string]any{"size": size, "no_host": true})
	if err != nil {
		return reconnect.Directive{}, fmt.Errorf("routing: %w", err) // cannot fail, because it contains only numbers
	}
	for _, agent := range c.agents() {
		var d reconnect.Directive
		d, err = c.resolve(ctx, agent, room, string(body))
		answer, ok := errors.AsType[*AgentError](err)
		if err == nil || ctx.Err() != nil || ok && answer.Status < http.StatusInternalServerError {
			return d, err
		}
	}
	return reconnect.Directive{}, err
}

const (
	roomIdle     = 50 * time.Second // after this time, three keep-alive comments are missing
	roomWarnings = time.Minute      // minimum time between two warnings
)

func (c *Client) resolve(ctx context.Context, agent, room, body string) (d reconnect.Directive, _ error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.IdleTimeout)
	defer cancel()
	resp, err := c.call(ctx, agent, http.MethodPost, roomPath(room)+"/resolve", strings.NewReader(body))
	if err != nil {
		return d, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Room string `json:"room"`
		Node struct {
			ID      lease.NodeID `json:"id"`
			APIAddr string       `json:"api_addr"`
		} `json:"node"`
		Reason string `json:"reason"`
		Epoch  uint64 `json:"epoch"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxEvent)).Decode(&answer); err != nil {
		return d, fmt.Errorf("routing: unexpected answer of %s: %w", agenturl.Shown(agent), err)
	}
	return reconnect.Directive{
		Room:   answer.Room,
		To:     answer.Node.ID,
		Addr:   answer.Node.APIAddr,
		Reason: answer.Reason,
		Epoch:  answer.Epoch,
	}, nil
}

// Follow returns the node of a room, and then each new node of the room, until ctx ends. Follow pins nothing,
// so the first directive arrives when the room has a node. If the agent fails, Follow continues with another
// agent. If all agents fail, for example because the token is wrong, Follow logs a warning, at most once per
// minute for all rooms.
func (c *Client) Follow(ctx context.Context, room string) iter.Seq[reconnect.Directive] {
	return func(yield func(reconnect.Directive) bool) {
		var last reconnect.Directive
		ended := errors.New("routing: the caller has stopped it")
		for failed := 0; ctx.Err() == nil; failed++ {
			worked, err := c.followRoom(ctx, failed, room, func(data []byte) error {
				failed = -1 // then the next attempt starts with the agent that the Client follows
				var d reconnect.Directive
				if err := json.Unmarshal(data, &d); err != nil {
					return fmt.Errorf("routing: unexpected directive: %w", err)
				}
				// Another agent may repeat the room's node, or may not know the last move yet.
				if d.Epoch == last.Epoch && d.To == last.To || d.Epoch != 0 && d.Epoch < last.Epoch {
					return nil
				}
				if last = d; !yield(d) {
					return ended
				}
				return nil
			})
			if errors.Is(err, ended) || ctx.Err() != nil {
				return
			}
			if worked {
				failed = -1
			}
			c.lostRoom(ctx, failed, room, err)
		}
	}
}

// lostRoom logs the end of a room's stream, and waits before the next attempt. Thousands of streams may end
// at the same time, so lostRoom logs only one warning for all of them.
func (c *Client) lostRoom(ctx context.Context, failed int, room string, err error) {
	now, last := int64(time.Since(c.started)), c.warned.Load()
	if failed == len(c.cfg.Agents)-1 && (last == 0 || now-last > int64(roomWarnings)) && c.warned.CompareAndSwap(last, now) {
		c.cfg.Log.Warn("no agent follows the room; retrying", "room", room, "err", err)
	} else {
		c.cfg.Log.Debug("stream of a room lost", "room", room, "err", err)
	}
	pause := time.NewTimer(rand.N(min(leastPause<<min(max(failed, 0), 8), longestPause)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// followRoom passes the directives of an agent to take. followRoom returns when take fails, when the agent is
// silent, or when the Client no longer follows the agent. followRoom first tries the agent that the Client
// follows. A stream that was open for a while counts as working, even if it sent no directive.
func (c *Client) followRoom(ctx context.Context, try int, room string, take func([]byte) error) (worked bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agents := c.agents()
	agent := agents[try%len(agents)]
	if followed := c.current.Load(); followed != nil && followed.agent == agent {
		defer context.AfterFunc(followed.ctx, cancel)()
	}
	idle := time.AfterFunc(roomIdle, cancel)
	defer idle.Stop()
	var opened time.Time
	err := c.events(ctx, agent, roomPath(room)+"/follow", "", func(int) {
		if opened.IsZero() {
			opened = time.Now()
		}
		idle.Reset(roomIdle)
	}, func(data []byte) error {
		idle.Stop() // the time that the caller spends on a directive must not count as silence
		defer idle.Reset(roomIdle)
		return take(data)
	})
	return !opened.IsZero() && time.Since(opened) > longestPause, err
}

// agents returns all agents. The agent that the Client follows comes first.
func (c *Client) agents() []string {
	agents := slices.Clone(c.cfg.Agents)
	if followed := c.current.Load(); followed != nil {
		agents = slices.DeleteFunc(agents, func(a string) bool { return a == followed.agent })
		agents = slices.Insert(agents, 0, followed.agent)
	}
	return agents
}

// roomPath also escapes dots, because the room name ../.. would otherwise mean a parent directory.
func roomPath(room string) string {
	return "/v1/rooms/" + strings.ReplaceAll(url.PathEscape(room), ".", "%2E")
}
