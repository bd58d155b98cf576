package lease

import (
	"maps"
	"reflect"
)

// Profile contains what a node announces about itself. Every type that describes a member embeds Profile. To
// add a field, also add it to the encoding of a record and to the configuration of a node.
type Profile struct {
	ID           NodeID            `json:"id"`
	Incarnation  uint64            `json:"incarnation,string"` // identifies the node's process; greater after a restart
	Addr         string            `json:"addr"`               // host:port for gossip; other nodes reject a node without an address, because it could not prove that it runs
	APIAddr      string            `json:"api_addr"`           // address of the node's own application; opaque to roost
	Zone         string            `json:"zone"`
	Weight       uint32            `json:"weight"`   // share of the partitions relative to other nodes; 0 owns nothing
	Capacity     int64             `json:"capacity"` // units of load that the node can carry; 0 = unknown
	Labels       map[string]string `json:"labels,omitempty"`
	RoostVersion string            `json:"roost_version,omitempty"` // a tag or an abbreviated commit hash, for display
	AppVersion   string            `json:"app_version,omitempty"`   // version of the node's application, for display; "" = not set
}

// Equal reports whether all fields of p and o are equal.
func (p *Profile) Equal(o *Profile) bool {
	a, b := *p, *o
	a.Labels, b.Labels = nil, nil
	return reflect.DeepEqual(a, b) && maps.Equal(p.Labels, o.Labels)
}
