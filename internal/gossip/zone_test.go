package gossip

import (
	"log/slog"
	"strings"
	"testing"
)

// A node does not start if it advertises a link-local address that other nodes cannot reach, or if it is bound to a
// link-local address without a zone.
func TestLinkLocalFaults(t *testing.T) {
	for _, c := range []struct{ bind, advertise, want string }{
		{"127.0.0.1:0", "[fe80::1]:7946", "bind to it"},
		{"127.0.0.1:0", "[fe80::1%lo]:7946", "leave it out"},
		{"[fe80::1%lo]:0", "[fe80::1%lo]:7946", "leave it out"},
		{"[fe80::1]:0", "", "zone"},
	} {
		n, err := Start(t.Context(),
			Config{Name: "a#1", Bind: c.bind, Advertise: c.advertise, Meta: metaOf(""), Log: slog.New(slog.DiscardHandler)},
			nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bound to %q, advertising %q: %v", c.bind, c.advertise, err)
		}
		if n != nil {
			_ = n.Close()
		}
	}
}
