package firewall

import (
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// labeled returns a packet with the label of the cluster "test".
func labeled(t *testing.T, b []byte) []byte {
	t.Helper()
	out, err := memberlist.AddLabelHeaderToPacket(b, "test")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
