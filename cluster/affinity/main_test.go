package affinity

import (
	"flag"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
)

var modelLong = flag.Bool("long", false, "explore the large worlds of the model of rooms, and print how joins go by distance of Redis; takes two minutes")

func TestMain(m *testing.M) { leak.Main(m) }
