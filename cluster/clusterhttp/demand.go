package clusterhttp

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// roomDemand is the body of a resolve call.
type roomDemand struct {
	affinity.Demand

	// Touch is set by a caller that serves the room. The demand in the body then replaces the room's known
	// demand, even if the new demand is lower.
	Touch bool `json:"touch,omitempty"`

	// NoHost is set by a caller that only directs clients to nodes, and does not serve rooms on this node.
	NoHost bool `json:"no_host,omitempty"`
}

// roomReservation is the body of a reservation.
type roomReservation struct {
	affinity.Demand
	Until time.Time `json:"until"`
}

func checkDemand(d affinity.Demand) *Problem {
	if d.Size < 0 || d.Size > pinstore.MaxSize {
		return badRequest("size is %d; it must be 0 to %d participants", d.Size, pinstore.MaxSize)
	}
	if err := d.Validate(); err != nil {
		return badRequest("%s", bare(err))
	}
	return nil
}

// demandIn parses a demand from a query. Commas separate the values of prefer and of require.
func demandIn(query string) (d affinity.Demand, _ *Problem) {
	var size, publishers, subscribers int64
	for _, number := range []struct {
		name string
		to   *int64
	}{{"size", &size}, {"publishers", &publishers}, {"subscribers", &subscribers}, {"units", &d.Units}} {
		text, p := param(query, number.name)
		if p != nil {
			return d, p
		}
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		switch most := int64(pinstore.MaxSize); {
		case number.to == &d.Units && err != nil:
			return d, badRequest("%s is %.20q; it must be a whole number of units", number.name, text)
		case err != nil || (number.to != &d.Units && (n < 0 || n > most)):
			return d, badRequest("%s is %.20q; it must be 0 to %d participants", number.name, text, most)
		}
		*number.to = n
	}
	d.Size, d.Publishers, d.Subscribers = int(size), int(publishers), int(subscribers)
	if p := rulesIn(query, &d); p != nil {
		return d, p
	}
	return d, checkDemand(d)
}

// rulesIn parses prefer and require from a query into d.
func rulesIn(query string, d *affinity.Demand) *Problem {
	preferences, p := param(query, "prefer")
	if p != nil {
		return p
	}
	if preferences != "" {
		d.Prefer = strings.Split(preferences, ",")
	}
	labels, p := param(query, "require")
	if p != nil || labels == "" {
		return p
	}
	d.Require = make(map[string]string)
	for rule := range strings.SplitSeq(labels, ",") {
		label, value, ok := strings.Cut(rule, "=")
		if _, twice := d.Require[label]; !ok || twice {
			return badRequest("require is %.140q; it must be LABEL=VALUE,... with each label once", labels)
		}
		d.Require[label] = value
	}
	return nil
}

// queryOf encodes a demand as a query, which demandIn can parse.
func queryOf(d affinity.Demand) url.Values {
	query := url.Values{}
	for name, n := range map[string]int64{
		"size": int64(d.Size), "publishers": int64(d.Publishers), "subscribers": int64(d.Subscribers), "units": d.Units,
	} {
		if n != 0 || (name == "size" && d.Streams() == 0) {
			query.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if len(d.Prefer) > 0 {
		query.Set("prefer", strings.Join(d.Prefer, ","))
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(d.Require)) {
		labels = append(labels, label+"="+d.Require[label])
	}
	if len(labels) > 0 {
		query.Set("require", strings.Join(labels, ","))
	}
	return query
}
