package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// Need is an affinity.Demand in a form that can be compared and stored in a pin.
type Need struct {
	Publishers, Subscribers int
	Stated                  int    // publishers in the demand; some of them may not be present
	Split                   bool   // stated by Publishers and Subscribers
	Mesh                    bool   // stated by Size: all participants publish
	Units                   int64  // 0: use Config.Cost
	Ahead                   int64  // units that a reservation keeps free: the room costs at least that
	Rules                   string // Prefer and Require, as in Pin.Needs
}

// These are the names in Pin.Needs. Other names come from later releases and are preserved.
const (
	publishers = "publishers"
	units      = "units"
	ahead      = "ahead"
	prefer     = "prefer"
	require    = "require"
	replaced   = "replaced" // not part of the need: see Replacing
)

// Replacing marks a pin as a replacement for another node's pin or for the mark of a released room, and
// records the reason for other nodes. Without this, a node that finds a new pin with its own name could not
// tell whether the room was on another node or the store has lost the previous pin.
func Replacing(p pinstore.Pin, why string) pinstore.Pin {
	if p.Needs != "" {
		p.Needs += "&"
	}
	p.Needs += replaced + "=" + url.QueryEscape(why)
	return p
}

// Replaced reports whether a pin was marked by Replacing and its host has not refreshed it since, and returns
// the reason.
func Replaced(p pinstore.Pin) (why string, ok bool) {
	if !strings.Contains(p.Needs, replaced+"=") {
		return "", false // nearly all pins, and parsing takes time
	}
	all, _ := url.ParseQuery(p.Needs)
	return all.Get(replaced), all.Has(replaced)
}

// EncodeRules encodes the preferences and requirements of a room as in Pin.Needs.
func EncodeRules(preferred []string, required map[string]string) string {
	if len(preferred)+len(required) == 0 {
		return ""
	}
	rules := url.Values{prefer: preferred}
	for _, label := range slices.Sorted(maps.Keys(required)) {
		rules.Add(require, label+"="+required[label])
	}
	return rules.Encode()
}

// ParseRules is the inverse of EncodeRules. ParseRules returns each requirement as label=value.
func ParseRules(rules string) (preferred, required []string) {
	all, _ := url.ParseQuery(rules)
	return all[prefer], all[require]
}

// NeedIn returns the need of a pinned room.
func NeedIn(p pinstore.Pin) Need {
	mesh := Need{Publishers: p.Size, Mesh: p.Size > 0}
	if p.Needs == "" {
		return mesh
	}
	all, err := url.ParseQuery(p.Needs)
	if err != nil {
		return mesh
	}
	n := mesh
	if all.Has(publishers) {
		n.Mesh, n.Split = false, true
		n.Stated, _ = strconv.Atoi(all.Get(publishers))
		n.Stated = min(max(0, n.Stated), pinstore.MaxSize)
		n.Publishers = min(n.Stated, p.Size)
		n.Subscribers = p.Size - n.Publishers
	}
	n.Units, n.Ahead = unitsIn(all, units), unitsIn(all, ahead)
	all.Del(publishers)
	all.Del(units)
	all.Del(ahead)
	all.Del(replaced)
	n.Rules = all.Encode()
	return n
}

func unitsIn(needs url.Values, name string) int64 {
	n, _ := strconv.ParseInt(needs.Get(name), 10, 64)
	return max(0, n)
}

// Pin returns p with the size and the needs of n.
func (n Need) Pin(p pinstore.Pin) pinstore.Pin {
	var parts []string
	if n.Split || (!n.Mesh && n.Size() > 0) {
		parts = append(parts, publishers+"="+strconv.Itoa(n.Stated))
	}
	if n.Units > 0 {
		parts = append(parts, units+"="+strconv.FormatInt(n.Units, 10))
	}
	if n.Ahead > 0 {
		parts = append(parts, ahead+"="+strconv.FormatInt(n.Ahead, 10))
	}
	if n.Rules != "" {
		parts = append(parts, n.Rules)
	}
	p.Size, p.Needs = n.Size(), strings.Join(parts, "&")
	return p
}

// Size returns the number of participants.
func (n Need) Size() int { return n.Publishers + n.Subscribers }

// String returns the cost of n as readable text.
func (n Need) String() string {
	switch {
	case n.Ahead > 0 && n.Size() == 0 && n.Units == 0:
		return fmt.Sprintf("%d reserved units", n.Ahead)
	case n.Units > 0:
		return fmt.Sprintf("%d units", n.Units)
	case n.Mesh || n.Size() == 0:
		return fmt.Sprintf("%d participants", n.Publishers)
	}
	return fmt.Sprintf("%d publishers and %d subscribers", n.Publishers, n.Subscribers)
}

// Counted returns n adjusted to the given number of participants. If not all participants publish, joining
// and leaving participants are considered subscribers.
func (n Need) Counted(participants int) Need {
	participants = min(max(0, participants), pinstore.MaxSize)
	if n.Mesh || (!n.Split && n.Size() == 0 && n.Units == 0) {
		n.Publishers, n.Mesh = participants, participants > 0
		return n
	}
	n.Publishers = min(n.Stated, participants)
	n.Subscribers = participants - n.Publishers
	return n
}

// Empty returns the need of the room without participants.
func (n Need) Empty() Need { return Need{Ahead: n.Ahead, Rules: n.Rules} }

// Joined returns what the room needs after a participant with another need has joined. The result is never
// smaller than n. The rules only change if n has none.
func (n Need) Joined(by Need) Need {
	n.Rules, n.Units, n.Ahead = cmp.Or(n.Rules, by.Rules), max(n.Units, by.Units), max(n.Ahead, by.Ahead)
	switch {
	case n.Size() == 0 && !n.Split:
		n.Publishers, n.Subscribers, n.Mesh = by.Publishers, by.Subscribers, by.Mesh
		n.Stated, n.Split = by.Stated, by.Split
	case by.Mesh:
		n = n.Counted(max(n.Size(), by.Size()))
	case by.Size() > 0:
		n.Stated, n.Split = max(n.Stated, by.Stated), n.Split || by.Split
		n.Publishers = max(n.Publishers, by.Publishers)
		n.Subscribers = min(max(n.Subscribers, by.Subscribers), pinstore.MaxSize-n.Publishers)
		n.Mesh = n.Mesh && n.Subscribers == 0
	}
	return n
}

// Outgrew reports whether n is more than about twice as large as before.
func (n Need) Outgrew(before Need) bool {
	return n.Size() > 2*before.Size()+1 || n.Publishers > 2*before.Publishers+1 ||
		(n.Units > 0 && n.Units/2 > before.Units && before.Units < math.MaxInt64/2)
}
