package httpproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
)

// A proxy sends each request to the server of its room. If you have a routing client c, use httpproxy.FromClient(c) as
// Place.
func Example() {
	server := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s serves %s", name, r.URL.Path)
		}))
	}
	a, b := server("media-a"), server("media-b")
	defer a.Close()
	defer b.Close()

	proxy, err := httpproxy.New(httpproxy.Config{
		Key: httpproxy.FromPath(2), // /rooms/standup/join: standup
		Place: func(room string) (addr string, here bool, err error) {
			if room == "standup" {
				return a.URL, false, nil
			}
			return b.URL, false, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	for _, path := range []string{"/rooms/standup/join", "/rooms/retro/join"} {
		resp, err := http.Get(front.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Println(string(body))
	}
	// Output:
	// media-a serves /rooms/standup/join
	// media-b serves /rooms/retro/join
}

// A text from a user's configuration says which part of a request is the key.
func ExampleParseKey() {
	key, err := httpproxy.ParseKey("header:X-Room")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest(http.MethodGet, "/join", nil)
	r.Header.Set("X-Room", "standup")
	room, err := key(r)
	fmt.Println(room, err)
	// Output: standup <nil>
}
