package firewall

// Rejected packets and streams are counted here by reason, because memberlist v0.5.1 only logs a line for
// each of them (ingestPacket and handleConn). A flood of foreign packets would cause a flood of log lines.
//
// This file can be removed when memberlist counts rejections by reason and reports the latest sources.

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Why is the reason for rejecting a packet or a stream.
type Why int

// The reasons.
const (
	WrongKey     Why = iota // no key of this node decrypts it, or only one of the two sides uses a key
	WrongCluster            // it names another cluster, or none
	NotAllowed              // its source is not in any network of Config.Allow
	reasons                 // number of reasons
)

// String returns "wrong_key", "wrong_cluster" or "not_allowed".
func (w Why) String() string { return [...]string{"wrong_key", "wrong_cluster", "not_allowed"}[w] }

// Over is the protocol of a packet or a stream. The source address can be forged over UDP, but not over TCP.
type Over int

// The protocols.
const (
	UDP Over = iota
	TCP
)

// String returns "udp" or "tcp".
func (o Over) String() string { return [...]string{"udp", "tcp"}[o] }

// Rejection describes what this node rejected from one source.
type Rejection struct {
	Why     Why
	Over    Over
	From    string // ip:port over UDP; ip over TCP, because each connection has a different port
	Cluster string // latest cluster name, for WrongCluster; at most 255 bytes, chosen by an unauthenticated sender
	Count   uint64 // since the source became one of the latest
	Latest  time.Time
}

const (
	maxSources       = 4 // per reason and protocol, so that forged packets do not displace the sources of streams
	logRejectedEvery = time.Minute
)

// Rejections counts rejected packets and streams by reason, and keeps the latest sources. It is safe for
// concurrent use.
type Rejections struct {
	log    *slog.Logger // nil = none
	counts [reasons]atomic.Uint64

	mu     sync.Mutex
	latest map[origin][]Rejection // the latest source last
	logged map[origin]time.Time
}

type origin struct {
	why  Why
	over Over
}

// NewRejections returns Rejections that log to log. If log is nil, nothing is logged.
func NewRejections(log *slog.Logger) *Rejections { return &Rejections{log: log} }

// Count returns how many packets and streams were rejected for a reason.
func (r *Rejections) Count(why Why) uint64 { return r.counts[why].Load() }

// note counts one packet or stream. It logs at most one line per minute for each reason and protocol.
func (r *Rejections) note(why Why, over Over, from netip.AddrPort, cluster string) {
	r.counts[why].Add(1)
	now, of := time.Now(), origin{why, over}
	source := Rejection{Why: why, Over: over, From: from.String(), Cluster: cluster}
	if over == TCP {
		source.From = from.Addr().String()
	}
	r.mu.Lock()
	if r.latest == nil {
		r.latest, r.logged = make(map[origin][]Rejection), make(map[origin]time.Time)
	}
	known := r.latest[of]
	if i := slices.IndexFunc(known, func(k Rejection) bool { return k.From == source.From }); i >= 0 {
		source.Count = known[i].Count
		known = slices.Delete(known, i, i+1)
	} else if len(known) == maxSources {
		known = slices.Delete(known, 0, 1)
	}
	source.Count++
	source.Latest = now
	r.latest[of] = append(known, source)
	logs := r.log != nil && now.Sub(r.logged[of]) >= logRejectedEvery
	if logs {
		r.logged[of] = now
	}
	r.mu.Unlock()
	if logs {
		attrs := []any{"reason", why.String(), "from", source.From, "over", over.String(), "count", r.counts[why].Load()}
		if why == WrongCluster {
			attrs = append(attrs, "cluster", cluster)
		}
		r.log.Log(context.Background(), slog.LevelWarn, "gossip from outside the cluster rejected", attrs...)
	}
}

// All returns what was rejected from the latest sources, starting with the latest source.
func (r *Rejections) All() []Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(slices.Collect(maps.Values(r.latest))...)
	slices.SortFunc(all, func(a, b Rejection) int { return b.Latest.Compare(a.Latest) })
	return all
}

// addrPort converts an address to an ip:port, or returns the zero value if that is not possible.
func addrPort(addr net.Addr) netip.AddrPort {
	if udp, ok := addr.(*net.UDPAddr); ok {
		return udp.AddrPort()
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
