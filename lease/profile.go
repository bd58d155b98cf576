package lease

import (
	"maps"
	"reflect"
)

// Profile is what a node announces about itself. Everything that shows a member embeds it. To add a field,
// add it here, to the encoding of a record, and to the configuration of a node.
type Profile struct {
	ID           NodeID            `json:"id"`
	Incarnation  uint64            `json:"incarnation,string"` // of the node's process; greater after a restart
	Addr         string            `json:"addr"`               // host:port at which the node gossips; other nodes do not accept a node without an address, because it could not show that it runs
	APIAddr      string            `json:"api_addr"`           // address of the node's own application; opaque to roost
	Zone         string            `json:"zone"`
	Weight       uint32            `json:"weight"`   // share of the partitions relative to other nodes; 0 owns nothing
	Capacity     int64             `json:"capacity"` // units of load that the node can carry; 0 = unknown
	Labels       map[string]string `json:"labels,omitempty"`
	RoostVersion string            `json:"roost_version,omitempty"` // a tag or the beginning of a commit hash, for people
	AppVersion   string            `json:"app_version,omitempty"`   // of the node's application, for people; "" = not stated
}

// Equal reports whether p and o agree in all fields.
func (p *Profile) Equal(o *Profile) bool {
	a, b := *p, *o
	a.Labels, b.Labels = nil, nil
	return reflect.DeepEqual(a, b) && maps.Equal(p.Labels, o.Labels)
}
