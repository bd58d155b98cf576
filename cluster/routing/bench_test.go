package routing_test

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
)

// BenchmarkPlace compares lookups of a routing client with lookups of its agent, with one caller and with one caller
// per CPU.
func BenchmarkPlace(b *testing.B) {
	agent, err := cluster.Start(b.Context(), cluster.Config{
		ID:        "solo",
		Bind:      "127.0.0.1:0",
		Bootstrap: true,
		Network:   cluster.Local,
		Log:       quiet,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	<-agent.Ready()
	srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	defer srv.Close()
	f, err := routing.Start(b.Context(), routing.Config{Agents: []string{srv.URL}, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	<-f.Ready()
	var keys [1024]string
	for i := range keys {
		keys[i] = fmt.Sprint("room-", i)
	}
	for name, place := range map[string]func(key string) error{
		"agent":          func(key string) error { _, err := agent.Place(key); return err },
		"routing client": func(key string) error { _, err := f.Place(key); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := place(keys[i%len(keys)]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if err := place(keys[i%len(keys)]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
