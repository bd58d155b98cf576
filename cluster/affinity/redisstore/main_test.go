package redisstore

import (
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Names()
	leak.Main(m)
}
