package firewall_test

import (
	"encoding/binary"
	"testing"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// If a node in an exchange has too few versions, memberlist would end this process. The firewall drops such an
// exchange, with and without a key.
func TestVersions(t *testing.T) {
	both(t, func(t *testing.T, k firewall.Keys) {
		m := start(t, "a#1", k, nil)
		dropped := uint64(0)
		for name, node := range map[string]string{
			"one version":        "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xa1\x01",
			"none":               "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xa0",
			"nil":                "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xc0",
			"no field":           "\x82\xa4Name\xa3b#1\xa5State\x00",
			"nothing":            "\x80",
			"as an array":        "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\x93\x01\x05\x02",
			"as a map":           "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\x81\x01\x05",
			"as bytes":           "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xc4\x03\x01\x05\x02",
			"many":               "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xa7\x01\x05\x02\x00\x00\x00\x00",
			"twice":              "\x84\xa4Name\xa3b#1\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00\xa5State\x00\xa3Vsn\xa1\x01",
			"a long key":         "\x83\xa4Name\xa3b#1\xa5State\x00\xd9\x03Vsn\xa1\x01",
			"a node as an array": "\x96\xa3b#1\xc4\x04\x7f\x00\x00\x01\x01\xa0\x01\x00",
			"a node that is nil": "\xc0",
			"cut short":          "\x83\xa4Name\xa3b#1\xa5State\x00\xa3Vsn\xa6\x01",
		} {
			content := exchange(1, 0, node)
			if len(k.Secrets) > 0 {
				head := string(binary.BigEndian.AppendUint32([]byte("\x0a"), uint32(sealed+len(content))))
				content = head + seal(t, 1, content, head+"test")
			}
			conn := dial(t, "tcp", m)
			write(t, conn, []byte(label+content))
			dropped++
			eventually(t, name+": it is counted", func() bool { return m.firewall.Dropped() == dropped })
			ends(t, conn)
		}
		b := start(t, "b#1", k, nil)
		if err := b.join(m.addr()); err != nil {
			t.Error(err)
		}
		eventually(t, "a knows both", func() bool { return m.NumMembers() == 2 })
	})
}
