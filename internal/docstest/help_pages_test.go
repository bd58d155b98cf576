//go:build linux

package docstest

import "slices"

// The names of the help texts: node-a, node-b, node-c, which pin rooms.
var fleet = []step{
	{given: "(umask 077; echo secret-of-the-test > roost.token)"},
	{given: "export ROOST_REDIS=redis://127.0.0.1:6379"},
	{given: "roost agent --id node-a", stays: true, want: `agent running`},
	{given: "roost agent --id node-b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --join 127.0.0.1:7946", stays: true, want: `agent running`},
	{given: "roost agent --id node-c --bind 10.0.0.7:7946 --http 10.0.0.7:8401 --http-token-file roost.token --join 127.0.0.1:7946", stays: true, want: `agent running`},
	{given: "roost members", again: true, want: `(?s)node-a \*.* same.*node-b.* same.*node-c.* same`},
}

func with(before []step, steps ...step) []step {
	return slices.Concat(before, steps)
}

var help = [][]step{
	{
		{line: "roost doctor > report || [ $? -eq 3 ] || page-someone report", given: "page-someone() { echo somebody is paged: $*; }", also: "cat report", want: `somebody is paged: report`},
		{line: "roost members > members || echo no agent here", want: `no agent here`},
	},
	{
		{line: "roost agent --id a", stays: true, want: `agent running`},
		{line: "roost agent --id b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --join 127.0.0.1:7946", stays: true, want: `agent running`},
		{given: "curl -s 127.0.0.1:8401/v1/members", again: true, want: two},
	},
	{
		{given: "roost keygen --out roost.key", want: ``},
		{given: "roost agent --id seed --bind 10.0.0.1:7946 --http 10.0.0.1:8401 --key-file roost.key", stays: true, want: `agent running`},
		{line: "ROOST_JOIN=10.0.0.1:7946 roost agent --bind 0.0.0.0:7946 --key-file roost.key", stays: true, want: `agent running`},
		{given: "roost members", again: true, want: `seed `},
	},
	{{line: "roost demo", stays: true, code: 130, want: `5 agents start`}},
	{{line: "roost demo --once --nodes 7", stays: true, code: 130, want: `7 agents start`}},
	{{line: "roost demo --redis redis://127.0.0.1:6379", stays: true, code: 130, want: `5 agents start`}},
	{
		{line: "roost keygen --out roost.key", also: "cat roost.key; stat -c %a roost.key", want: `^[A-Za-z0-9+/]{43}=\n600\n$`},
		{line: "roost keygen > roost.key", also: "cat roost.key", want: `^[A-Za-z0-9+/]{43}=\n$`},
	},
	with(fleet,
		step{line: "roost members", want: `(?s)node-a \*.*node-b.*node-c`},
		step{line: "roost members --watch", stays: true, code: -1, want: `(?s)node-a \*.*node-b.*node-c`},
		step{line: "roost members --addr 127.0.0.1:8402 --output json", want: `"self":"node-b"`},
		step{line: "roost owners room-17", want: `(?s)1 +node-.*2 +node-.*3 +node-`},
		step{line: "roost owners room-17 -n 2 --output json", want: `"owners":`},
		step{line: "roost partitions", want: `(?s)node-a.*node-b.*node-c`},
		step{line: "roost partitions --output json | jq '.owners[17]'", want: `^"node-[abc]"\n$`},
		step{line: "roost partitions --output json > before.json", also: "cat before.json", want: `"owners":\["node-`},
		step{line: "roost place room-17", want: `room-17 +\d+ +node-`},
		step{line: "roost place room-17 room-18 --output json", want: `^{.*"room-17".*}\n{.*"room-18".*}\n$`},
		step{line: "roost rooms", given: "roost room resolve lobby", want: `lobby +node-`},
		step{line: "roost rooms --node node-b --limit 10000 --output json | jq '.rooms | length'", want: `^[01]\n$`},
		step{line: "roost rooms --watch", stays: true, code: -1, want: `lobby +node-`},
		step{line: "roost watch", stays: true, code: -1, want: `joined +node-b`},
		step{line: "roost watch --output json | jq -c '.joined, .left'", stays: true, code: -1, want: `"node-b"`},
		step{line: "roost doctor", code: 3, want: `seeds`}, // node-a has none
		step{line: "roost doctor --over 1m", why: "it takes a minute"},
		step{line: `roost doctor --output json | jq -r '.checks[] | select(.status != "ok") | .finding'`, want: `it has none but itself`},
		step{line: "roost top", stays: true, want: `node-c`},
		step{line: "roost top --addr 10.0.0.7:8401 --every 500ms", stays: true, want: `node-c`},
		step{line: "roost drain && systemctl stop media-server", given: `systemctl() { echo "systemctl $*"; }`, want: `systemctl stop media-server`},
		step{line: "roost drain --addr 10.0.0.7:8401 --token-file roost.token --timeout 1m", want: `node-c`},
		step{line: "roost leave --addr 127.0.0.1:8402", want: `node-b`},
	),
	with(fleet,
		step{line: "roost room room-17", want: `room-17`},
		step{line: "roost room show move", want: `move`},
		step{line: "roost room resolve room-17 --size 50", want: `room-17 lives on node-`},
		step{line: "roost room move room-17 node-b", want: `node-b`},
		step{line: "roost room move room-17 node-b", want: `node-b`},
		step{line: "roost room release room-17", want: `room-17`},
		step{line: "roost room resolve room-17 --size 4", want: `room-17 lives on node-`},
		step{line: "roost room show room-17", want: `room-17`},
		step{line: "roost room show room-17 --size 50", want: `room-17`},
		step{line: "roost undrain", given: "roost drain", want: `node-a .*active`},
		step{line: "roost weight 200", want: `200`},
		step{line: "roost partitions --output json > before.json", also: "cat before.json", want: `"owners":\["node-`},
		step{line: "roost partitions --output json | roost diff before.json -", want: `0 of 1024 partitions moved`},
		step{
			line: "roost diff before.json after.json --output json | jq '.moves | length'", given: "roost drain; roost partitions --output json > after.json; roost undrain",
			want: `\n[1-9]\d*\n$`,
		},
		step{line: "roost plan --add node-d", want: `node-d`},
		step{line: "roost plan --add node-d=200 --remove node-a", want: `node-d`},
		step{line: "roost plan --weight node-b=50", want: `node-b`},
		step{line: "roost plan --partitions 4096 --strategy bounded-rendezvous-110", want: `4,?096`},
		step{line: "roost plan --remove node-c --from before.json --output json | jq '.moves | length'", want: `^[1-9]\d*\n$`},
	),
	{
		{line: "roost version", want: `roost .*go1\.`},
		{line: "roost version --output json", want: `"go":"go1\.`},
		{line: "roost completion bash > /etc/bash_completion.d/roost", given: "mkdir bash_completion.d", also: "cat bash_completion.d/roost", want: `__start_roost`},
		{line: `roost completion zsh > "${fpath[1]}/_roost"`, given: "fpath[1]=.", also: "cat _roost", want: `#compdef roost`},
		{line: "roost completion fish > ~/.config/fish/completions/roost.fish", given: "HOME=.; mkdir -p ~/.config/fish/completions", also: "cat .config/fish/completions/roost.fish", want: `complete -c roost`},
	},
}

var helpOfRoost = [][]step{
	{{line: "roost demo", stays: true, code: 130, want: `5 agents start`}},
	{
		{line: "roost agent --id a --bind 127.0.0.1:7946", stays: true, want: `agent running`},
		{line: "roost agent --id b --bind 127.0.0.1:7947 --join 127.0.0.1:7946 --http 127.0.0.1:8402", stays: true, want: `agent running`},
		{given: "curl -s 127.0.0.1:8401/v1/members", again: true, want: two},
		{line: "roost members", want: `(?s)a \* .*\nb `},
		{line: "roost place room-17", want: `room-17 +\d+ +[ab] `},
	},
}
