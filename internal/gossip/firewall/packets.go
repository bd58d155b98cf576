package firewall

// This is the rule for packets. memberlist v0.5.1 decompresses received messages without a limit (decompressBuffer),
// and a compound message may contain compressed messages and other compound messages (handleCompound). So a single
// packet of 64 KiB from an unauthenticated sender can expand to several times 40 MiB:
// https://github.com/hashicorp/memberlist/issues/362
//
// The rule can be removed when memberlist limits the expanded size of one packet. The fix of issue 362 is not
// sufficient, because it allows 40 MiB for each compressed message, and a compound message can contain 255 of them.

import "github.com/hashicorp/memberlist"

// Message types of memberlist's packets.
const (
	typeCompound = 7
	typeCompress = 9
	typeChecksum = 12
)

// harmless reports whether a packet can be unpacked in one step. Agents do not send compressed packets or
// nested compound messages.
func harmless(b []byte) bool {
	b, _, err := memberlist.RemoveLabelHeaderFromPacket(b)
	if err != nil {
		return false
	}
	if len(b) >= 5 && b[0] == typeChecksum {
		b = b[5:]
	}
	if len(b) == 0 || b[0] != typeCompound {
		return len(b) > 0 && b[0] != typeCompress
	}
	return harmlessParts(b)
}

// harmlessParts is like harmless, but for the parts of a compound message.
func harmlessParts(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	parts := int(b[1])
	if b = b[2:]; len(b) < 2*parts {
		return false
	}
	sizes, b := b[:2*parts], b[2*parts:]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		size := int(sizes[0])<<8 | int(sizes[1])
		if size == 0 || size > len(b) || b[0] == typeCompound || b[0] == typeCompress {
			return false
		}
		b = b[size:]
	}
	return true
}
