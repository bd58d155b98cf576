//go:build linux

package docstest

const (
	network  = "it needs the network; what is tested is this tree"
	packages = "it changes go.mod"
)

// Two agents agree.
const two = `"id":"a".*"id":"b".*"converged":true`

var readme = [][]step{
	{
		{line: "git clone https://github.com/roost-cluster/roost && cd roost", why: network},
		{line: "make demo", want: `bin/roost demo --once`},
	},
	{
		{line: "go install github.com/roost-cluster/roost/cmd/roost@latest", why: network},
		{line: "roost agent --id a --bind 127.0.0.1:7946 --http 127.0.0.1:8401", stays: true, want: `agent running`},
		{line: "roost agent --id b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --join 127.0.0.1:7946", stays: true, want: `agent running`},
		{given: "curl -s 127.0.0.1:8401/v1/members", again: true, want: two},
		{line: "roost place room-17", want: `room-17 +\d+ +[ab] `},
		{line: "curl '127.0.0.1:8401/v1/place?key=room-17'", want: `"owner":{"id":"[ab]"`},
		{line: "roost watch", stays: true, code: -1, want: `joined +b`},
		{line: "curl -N 127.0.0.1:8401/v1/events", stays: true, code: -1, want: `event: batch`},
		{line: "roost partitions", want: `(?s)a .*b .*`},
		{line: "roost plan --add c --weight a=50", want: `c`},
		{line: "roost partitions --output json > before.json", also: "cat before.json", want: `"owners":\["[ab]"`},
		{line: "roost partitions --output json | roost diff before.json -", want: `0 of 1024 partitions moved`},
	},
	{
		{line: "ROOST_REDIS=redis://10.0.0.9:6379 roost agent --id a --capacity 5000 --report-load", stays: true, want: `agent running`},
		{line: `curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve`, again: true, want: `"id":"a".*"hosted":true`},
		{line: "roost room room-17", want: `room-17 lives on a`},
		{line: "roost doctor", code: 3, want: `seeds`}, // the only node has no seeds
		{line: "roost top", stays: true, want: `a`},
		{line: "roost members --watch", stays: true, code: -1, want: `a \* `},
	},
}

var contributing = [][]step{{
	{line: "make check", want: `go vet(.|\n)*go test -short(.|\n)*golangci-lint`},
	{line: "make test", want: `scripts/deps.sh(.|\n)*go test -race(.|\n)*scripts/fuzz.sh`},
	{line: "go get module@version", why: packages},
	{line: "go mod tidy", why: packages},
	{line: "go list -deps ./cluster", want: `github.com/hashicorp/memberlist`},
	{line: "cd internal/tools && go get -tool module@version", why: packages},
}}

var tutorial = [][]step{{
	{line: "git clone https://github.com/roost-cluster/roost && cd roost", why: network},
	{line: "go run ./examples/tutorial -id a -http 127.0.0.1:9001 -gossip 127.0.0.1:7946", stays: true, want: `settled node=a state=active`},
	{line: "go run ./examples/tutorial -id b -http 127.0.0.1:9002 -gossip 127.0.0.1:7947 -join 127.0.0.1:7946", stays: true, want: `settled node=b state=active`},
	{line: "curl -LX POST 127.0.0.1:9001/join/standup", again: true},
	{line: "curl -LX POST 127.0.0.1:9002/join/standup", again: true},
	{line: "curl -LX POST 127.0.0.1:9001/join/allhands", again: true},
	{line: "# Ctrl-C in the terminal of b", want: `^$`},
	{line: "curl -LX POST 127.0.0.1:9001/join/allhands"}, // at once: b has drained
	{line: "curl -LX POST 127.0.0.1:9001/join/standup"},
	{line: "curl 127.0.0.1:9001/metrics"},
}}

var sidecar = [][]step{{
	{line: "export ROOST_REDIS=redis://127.0.0.1:6379", want: `^$`},
	{line: "roost agent --id a --bind 127.0.0.1:7946 --http 127.0.0.1:8401 --api-addr 127.0.0.1:9001 --capacity 5000 --report-load &", stays: true, want: `agent running`},
	{line: "roost agent --id b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --api-addr 127.0.0.1:9002 --capacity 5000 --report-load --join 127.0.0.1:7946 &", stays: true, want: `agent running`},
	{line: "curl 127.0.0.1:8401/readyz", again: true},
	{given: "curl -s 127.0.0.1:8401/v1/members", again: true, want: two},
	{line: "curl -N 127.0.0.1:8401/v1/events &", stays: true, code: -1, want: `event: `},
	{line: `curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve`},
	{line: `curl -d '{"to":"b"}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/move`, again: true},
	{line: "curl -X DELETE 127.0.0.1:8402/v1/rooms/room-17"},
	{line: "curl -X POST '127.0.0.1:8402/v1/drain?wait=5s'"},
	{line: "curl -X POST '127.0.0.1:8402/v1/undrain'", want: `"state":"active"`},
	{line: "AGENT=http://127.0.0.1:8401 LISTEN=127.0.0.1:9001 node examples/sidecar/server.mjs &", stays: true, code: -1, want: `^$`},
	{line: "AGENT=http://127.0.0.1:8402 LISTEN=127.0.0.1:9002 node examples/sidecar/server.mjs &", stays: true, code: -1, want: `^$`},
	{line: "curl -L '127.0.0.1:9001/join/room-18?size=2'", again: true},
	{line: "curl 127.0.0.1:9002/rooms", want: `{"node":"b","rooms":\[`},
}}

var runbooks = [][]step{{
	{given: "roost agent --id a", stays: true, want: `agent running`},
	{line: "curl 127.0.0.1:8401/healthz", want: `{"status":"ok"}`},
	{line: "redis-cli -u URL ping", want: `PONG`},
	{line: "redis-cli config get maxmemory-policy", want: `noeviction`},
}}

const measured = "it is measured by wrk, for a minute"

var performance = [][]step{{
	{line: "go run ./bare &", why: measured},
	{line: "roost agent --id a &", why: measured},
}}

var clusterhttp = [][]step{{
	{given: "roost agent --id a --redis redis://127.0.0.1:6379", stays: true, want: `agent running`},
	{line: `curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve`, again: true, want: `"id":"a".*"hosted":true,"touch_within_s":3600`},
}}

var dockerfile = [][]step{{
	{line: "docker build -f deploy/docker/Dockerfile -t roost .", why: "there is no Docker; cmd/roost builds with its flags, and runs the result in an empty root"},
}}

var kubernetes = [][]step{{
	{
		line:  `kubectl create secret generic roost --from-literal=gossip.key="$(roost keygen)" --from-literal=http.token="$(roost keygen)"`,
		given: `kubectl() { echo "$@"; }`,
		want:  `gossip.key=[A-Za-z0-9+/]{43}= --from-literal=http.token=[A-Za-z0-9+/]{43}=`,
	},
	{line: "kubectl apply -f roost.yaml", why: "there is no Kubernetes; deploy/kubernetes has its types read the manifest"},
}}

var systemd = [][]step{{
	{line: "roost keygen --out /etc/roost/gossip.key", given: "mkdir roost", also: "cat roost/gossip.key", want: `[A-Za-z0-9+/]{43}=`},
	{line: "systemctl enable --now roost", why: "it would start a service; cmd/roost has systemd-analyze look at the unit"},
}}

var handover = [][]step{{{line: "go run ./examples/handover", want: `(?s)d has joined.*b has left`}}}

var presence = [][]step{{
	{line: "go run ./examples/presence", want: `bob/laptop  ?cy/tablet\s*$`},
	{line: "go run ./examples/presence -redis redis://127.0.0.1:6379", want: `bob/laptop  ?cy/tablet\s*$`},
}}

var rooms = [][]step{{
	{line: "go run ./examples/rooms", want: `standup moved from`},
	{line: "go run ./examples/rooms -redis redis://127.0.0.1:6379", want: `standup moved from`},
}}

var strategy = [][]step{{{line: "go run ./examples/strategy", want: `one that pins 32 is refused`}}}

var server = [][]step{{
	{given: "roost agent --id a --api-addr 127.0.0.1:9001", stays: true, want: `agent running`},
	{line: "AGENT=http://127.0.0.1:8401 LISTEN=127.0.0.1:9001 node server.mjs", stays: true, code: -1, want: `^$`},
	{given: "curl -s '127.0.0.1:9001/rooms'", again: true, want: `"node":"a"`},
}}
