package firewall

// This is the rule for versions. In v0.5.1, memberlist reads six versions of each node in an exchange, but
// does not check how many there are (verifyProtocol and mergeRemoteState). So an exchange with fewer versions
// ends the process. If this node accepts plain text, the sender does not even need a key:
// https://github.com/hashicorp/memberlist/pull/368
//
// The rule can be removed with the first memberlist release that has this fix, which is v0.7.0.

// versions is the number of versions of a node.
const versions = 6

// checkVersions reads an exchange. checkVersions fails unless each node has exactly the versions that agents
// send, as six bytes.
func (m *message) checkVersions(h head) error {
	m.next(h.at)
	for range h.nodes {
		if m.err != nil {
			break
		}
		m.node()
	}
	m.next(h.state)
	return m.err
}

// node reads one node of an exchange.
func (m *message) node() {
	fields, found := m.next(1)[0], false
	if fields>>4 != 0x80>>4 { // a map
		m.fail()
	}
	for range fields & 0x0f {
		key := m.next(1)[0]
		if key>>5 != 0xa0>>5 { // a string
			m.fail()
		}
		if string(m.next(int(key&0x1f))) != "Vsn" {
			m.skip(maxDepth - 1)
			continue
		}
		if kind := m.next(1)[0]; kind != 0xa0|versions && (kind != 0xc4 || m.next(1)[0] != versions) {
			m.fail()
		}
		m.next(versions)
		found = true
	}
	if !found {
		m.fail()
	}
}
