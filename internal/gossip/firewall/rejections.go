package firewall

// What the rules reject is counted here, by reason, because memberlist v0.5.1 says it in a log line for each packet and
// stream, and nowhere else (ingestPacket and handleConn). A flood of foreign packets would be a flood of lines.
//
// This can go when memberlist counts rejections by their reason and reports the latest sources.

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

// Why says why this node rejects a packet or a stream.
type Why int

// The reasons.
const (
	WrongKey     Why = iota // no key of this node opens it, or only one of the two sides uses a key
	WrongCluster            // it names another cluster, or none
	NotAllowed              // its source is in no network of Config.Allow
	reasons                 // how many there are
)

// String returns "wrong_key", "wrong_cluster" or "not_allowed".
func (w Why) String() string { return [...]string{"wrong_key", "wrong_cluster", "not_allowed"}[w] }

// Over says what a packet or a stream came over. Anybody can forge the source of UDP, and nobody the source of TCP.
type Over int

// The protocols.
const (
	UDP Over = iota
	TCP
)

// String returns "udp" or "tcp".
func (o Over) String() string { return [...]string{"udp", "tcp"}[o] }

// Rejection is what this node rejected from one source.
type Rejection struct {
	Why     Why
	Over    Over
	From    string // ip:port over UDP; ip over TCP, since each connection has a port of its own
	Cluster string // the latest name with WrongCluster, at most 255 bytes of an unauthenticated sender
	Count   uint64 // since the source is one of the latest
	Latest  time.Time
}

const (
	maxSources       = 4 // of each reason and protocol: forged packets displace no source of a stream
	logRejectedEvery = time.Minute
)

// Rejections counts what this node rejects, by reason, and keeps the latest sources. Calls may be concurrent.
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

// NewRejections logs to log; nil = no lines.
func NewRejections(log *slog.Logger) *Rejections { return &Rejections{log: log} }

// Count returns how many packets and streams were rejected for a reason.
func (r *Rejections) Count(why Why) uint64 { return r.counts[why].Load() }

// note counts one packet or stream. It logs one line a minute for each reason and protocol.
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

// All returns what the latest sources sent, the latest one first.
func (r *Rejections) All() []Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(slices.Collect(maps.Values(r.latest))...)
	slices.SortFunc(all, func(a, b Rejection) int { return b.Latest.Compare(a.Latest) })
	return all
}

// addrPort returns an address as ip:port; a zero one if it is none.
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
