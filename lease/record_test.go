package lease_test

import (
	"math"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/lease"
)

// Records contain real values such as domain names, addresses as ids, and metadata. Either the whole record fits into a
// packet, or Validate returns an error.
func TestRecordBounds(t *testing.T) {
	name := func(n int) string { return strings.Repeat("a", n) }
	base := lease.Record{Profile: lease.Profile{ID: "a", Addr: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:7946"}, MinWire: 1, MaxWire: 1}
	for what, c := range map[string]struct {
		change func(*lease.Record)
		want   string // "" = it is valid
	}{
		"an IPv6 address":          {func(r *lease.Record) { r.ID = "2001:db8::1" }, ""},
		"an IPv6 address and port": {func(r *lease.Record) { r.ID = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:7946" }, ""},
		"a zone of an address":     {func(r *lease.Record) { r.ID = "fe80::1%eth0" }, "byte '%'"},
		"a separator of pins":      {func(r *lease.Record) { r.ID = "a|b" }, "byte '|'"},
		"a domain name as zone":    {func(r *lease.Record) { r.Zone = name(253) }, ""},
		"a longer zone":            {func(r *lease.Record) { r.Zone = name(254) }, "zone has 254 bytes, at most 253"},
		"a domain name as label":   {func(r *lease.Record) { r.Labels = map[string]string{"host": name(253)} }, ""},
		"a longer label":           {func(r *lease.Record) { r.Labels = map[string]string{"host": name(254)} }, "the value at most 253"},
		"a long key":               {func(r *lease.Record) { r.Labels = map[string]string{name(65): ""} }, "the key has 1 to 64 bytes"},
		"long versions":            {func(r *lease.Record) { r.RoostVersion, r.AppVersion = name(64), name(64) }, ""},
		"a longer app version":     {func(r *lease.Record) { r.AppVersion = name(65) }, "app version has 65 bytes, at most 64"},
		"a longer roost version":   {func(r *lease.Record) { r.RoostVersion = name(65) }, "roost version has 65 bytes, at most 64"},
		"metadata":                 {func(r *lease.Record) { r.Meta = strings.Repeat("\xff\x00", 256) }, ""},
		"more metadata":            {func(r *lease.Record) { r.Meta = name(513) }, "meta has 513 bytes, at most 512"},
		"metadata and a zone":      {func(r *lease.Record) { r.Meta, r.Zone, r.APIAddr = name(512), name(253), "media-1.example.org:8443" }, ""},
		"all at once": {func(r *lease.Record) {
			r.Meta, r.Zone, r.Labels = name(512), name(253), map[string]string{"host": name(253)}
		}, "at most 1024: shorten api addr, zone, labels or meta"},
	} {
		r := base
		c.change(&r)
		m := &lease.Message{Stamp: lease.MinStart, Records: []*lease.Record{&r}}
		_, decoded := lease.Decode(lease.Encode(m))
		for from, err := range map[string]error{"Validate": r.Validate(), "Decode": decoded} {
			if (err == nil) != (c.want == "") || err != nil && from == "Validate" && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s says %v, want %q", what, from, err, c.want)
			}
		}
	}
}

// Other nodes can read the longest record that Validate accepts, whatever roost changes in it while the node runs. A
// record with one byte more would become too long.
func TestRecordStaysReadable(t *testing.T) {
	read := func(r *lease.Record) error {
		longest := *r
		longest.Addr, longest.HTTP = "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535", lease.MaxHTTP
		longest.Incarnation, longest.Version, longest.Weight = lease.MaxIncarnation, math.MaxUint32, lease.MaxWeight
		longest.RecentReturns, longest.FlappingUntil, longest.Drains = lease.MaxStamp, lease.MaxStamp, lease.MaxStamp
		longest.Keys, longest.Unhealthy = strings.Repeat("k", lease.MaxKeysBytes), true
		_, err := lease.Decode(lease.Encode(&lease.Message{Stamp: lease.MinStart, Records: []*lease.Record{&longest}}))
		return err
	}
	r := rec("a", 1)
	r.Zone, r.Meta = strings.Repeat("z", lease.MaxZoneBytes), strings.Repeat("m", 300)
	for r.Validate() == nil {
		r.Meta += "m"
	}
	if read(r) == nil {
		t.Errorf("Validate reserves too much space: it refuses %d bytes of metadata", len(r.Meta))
	}
	r.Meta = r.Meta[1:]
	if err := read(r); err != nil {
		t.Errorf("%d bytes of metadata: %v", len(r.Meta), err)
	}
}
