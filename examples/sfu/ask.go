package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// resolve asks the nodes of the fleet one after another where the room is. resolve starts with a random node.
// The node of the lost connection is asked only if there is no other.
func (b *bot) resolve(ctx context.Context, room string) (found reconnect.Directive, err error) {
	b.mu.Lock()
	var last reconnect.Directive
	if b.newest != nil && b.newest.home.Room == room {
		last = b.newest.home
	}
	b.mu.Unlock()
	doors := slices.Clone(b.doors())
	rand.Shuffle(len(doors), func(i, k int) { doors[i], doors[k] = doors[k], doors[i] })
	if others := slices.DeleteFunc(slices.Clone(doors), func(d string) bool { return d == last.Addr }); len(others) > 0 {
		doors = others // the node of the lost connection is not asked
	}
	err = errors.New("no node to ask")
	for _, door := range doors {
		if found, err = b.ask(ctx, door, room, last); err == nil {
			b.learn(found)
			return found, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return found, err
}

func (b *bot) ask(ctx context.Context, door, room string, last reconnect.Directive) (reconnect.Directive, error) {
	const timeout = 1300 * time.Millisecond // reporting a lost node can take a second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if b.report.Load() && last.Epoch > 0 {
		body, err := json.Marshal(last)
		if err != nil {
			return last, err
		}
		if d, err := b.request(ctx, http.MethodPost, "http://"+door+"/report/"+url.PathEscape(room), body); !errors.Is(err, errNoRoom) {
			return d, err
		}
	}
	return b.request(ctx, http.MethodGet, "http://"+door+"/where/"+url.PathEscape(room), nil)
}

var errNoRoom = errors.New("the room has no node")

func (c *crowd) request(ctx context.Context, method, at string, body []byte) (d reconnect.Directive, err error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return d, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return d, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return d, json.NewDecoder(resp.Body).Decode(&d)
	case http.StatusNotFound:
		return d, errNoRoom
	default:
		return d, fmt.Errorf("%s: %s", at, resp.Status)
	}
}
