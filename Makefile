# The two main commands: `make check` while working, `make test` before a push.

TOOL := go tool -modfile="$(CURDIR)/internal/tools/go.mod"
STEP := @scripts/step.sh
EACH := scripts/each-module.sh
NETWORKS = $(STEP) 'networks with faults' sh -c 'cd internal/e2e && go test -count=1 -v -timeout 1h -parallel 3 ./netlab -long $(if $(EXE),-exe "$(abspath $(EXE))")'
FLOODS = $(STEP) 'unauthenticated peers at the gossip port' go test -count=1 -v -timeout 1h -parallel 1 -run 'Test(Floods|Forgeries|Replay|Reflection)$$' ./cmd/roost -floods

# Packages without a goroutine, or with some that share nothing, or whose work is done by other programs. The
# race detector would find nothing in them, in six times the time. SHARED are the tests of these in which goroutines share a table.
export PURE := ./cluster/affinity/internal/liveness ./cluster/affinity/internal/rebalance ./cluster/affinity/pinstore ./cluster/affinity/roomsim ./cluster/clusterhttp/dashboard \
	./cluster/clusterhttp/doctor ./cmd/roost/internal/settings ./internal/arch ./internal/auditor ./internal/docstest ./internal/explore \
	./internal/handoff ./internal/ledger ./internal/node ./internal/release ./internal/sim/... ./internal/split ./internal/sse ./internal/tablewire ./internal/wire \
	./lease ./placement ./placement/assignment ./placement/ring

# Tests of cmd/roost that look keys up thousands of times while agents come and go: all but the loop of the lookups is in other processes.
# scripts/race.sh skips these names, and those in MINUTES, in all packages.
export ROLLING := TestRollingRestart|TestMixedReleases

# Tests in which minutes of virtual time pass. They cost ten times as much CPU under the race detector, and the other
# tests of their packages let the same goroutines meet.
export MINUTES := TestFarStore|TestLargeAssignment|TestManyRoomsRestored|TestNobodyIsSilent|TestRebalanceRests|TestReservationOutlivesRoom|TestReservedRoomIsTouchedAgain|TestReservedUnitsAreUsedUp|TestRestartBeforeHeartbeatExpires|TestReusedAddress|TestShardDown|TestSplitAndHeal

SHARED := TestRankIsShared|TestBuiltinsConform//Concurrent

# Without the tables for debuggers, which no test reads, a program is linked in two thirds of the time.
# `make vet` looks at each package; go test would look again. With the paths trimmed, a clone in another folder
# finds in the cache of Go what was compiled in this one.
export GOFLAGS += -trimpath -ldflags=-w -vet=off

.DEFAULT_GOAL := help
.PHONY: help check test tests build release demo bench fmt deps lint vet short race e2e modules api newest update long cpus fuzz bench-once routing-clients handoff scale compare idle chaos models outages redis-versions mediamtx floods networks soak track-record newcomer vuln clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: vet short lint ## the quick look while working: vet, short tests, lint

test: deps tests ## everything, as CI runs it; installs missing programs

# Two at a time, in this order. The first takes as long as most others together, and the second waits more than it computes.
# golangci-lint has the checks of go vet, too.
tests: ## lint and all tests; prints each step at its end
	@$(MAKE) --no-print-directory -j 2 --output-sync race e2e lint long modules api newest cpus bench-once fuzz </dev/null
	@scripts/skipped.sh

build: ## build the binary into bin/
	$(STEP) 'build bin/roost' env CGO_ENABLED=0 go build -modfile=internal/tools/newest.mod -o bin/roost ./cmd/roost

release: ## VERSION=v0.1.0: archives for six platforms, images, npm packages, a bill of materials, and checksums, in dist/
	$(STEP) 'release $(VERSION)' scripts/release.sh $(VERSION)

demo: build ## a cluster on this machine that grows, crashes and drains
	$(STEP) 'demo' bin/roost demo --once
	@echo 'With calls: cd examples/sfu && go run . demo'

bench: ## run the benchmarks for their numbers
	$(STEP) 'benchmarks' $(EACH) go test -run '^$$' -bench . -benchmem ./...

fmt: ## format every Go file
	$(STEP) 'gofumpt' $(TOOL) gofumpt -w .

deps: ## install the programs that the tests need
	$(STEP) 'programs the tests need' scripts/deps.sh

lint: ## lint every module and the workflows; the first run compiles the linter
	$(STEP) 'golangci-lint' env GOGC=400 $(EACH) $(TOOL) golangci-lint run ./...
	$(STEP) 'actionlint' go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

vet: ## go vet in every module
	$(STEP) 'go vet' $(EACH) go vet ./...

short: ## the tests without the long ones
	$(STEP) 'short tests' go test -short -p 3 ./...

race: ## the tests of the root module under the race detector
	$(STEP) 'tests under the race detector' scripts/race.sh
	$(STEP) 'shared tables under the race detector' go test -race -run '$(SHARED)' ./placement

# Without the race detector: the servers behind the pages are under it in their own packages, and its build of Helm takes minutes.
UNRACED := ./browser ./compose ./helm ./npm ./recipes

e2e: ## the system tests: in a browser and in a terminal, of the files in deploy/, of other servers, and of agents in network namespaces
	$(STEP) 'tests in a browser, in a terminal, of deploy/, of npm packages, and of other servers' sh -c 'cd internal/e2e && go test -timeout 30m $(UNRACED)'
	$(STEP) 'networks under the race detector' sh -c 'cd internal/e2e && PURE="$(UNRACED)" ../../scripts/race.sh'

modules: ## the tests of the other modules under the race detector
	$(STEP) 'tests of the other modules' $(EACH) -nested sh -c 'test "$${PWD##*/}" = e2e || exec "$(CURDIR)/scripts/race.sh"'

api: ## compare the exported Go API with the last release
	$(STEP) 'the Go API and the last release' scripts/api.sh

newest: ## vet and the tests of what programs embed, with the newest dependencies and the newest Go
	$(STEP) 'the newest dependencies, and the newest Go' scripts/newest.sh

update: ## look for newer dependencies, write their versions into internal/tools/newest.mod, and test them
	$(STEP) 'newer dependencies' scripts/newest.sh -update

# GOGC=400 saves CPU here as it does in scripts/race.sh.
long: ## packages without a goroutine, and the crowds and calls that are too large for the race detector
	$(STEP) 'cores and simulations' env GOGC=400 go test -count=1 -timeout 20m $(PURE)
	$(STEP) 'a crowd of HTTP clients' go test -count=1 -run 'TestCrowd$$' ./cluster/clusterhttp
	$(STEP) 'rolling restarts, and a crowd of routing clients' go test -count=1 -run '^($(ROLLING)|TestRoutingClients)$$' ./cmd/roost -clients 200
	$(STEP) 'calls' sh -c 'cd examples/sfu && go test -count=1 .'
	$(STEP) 'the model of rooms, and minutes of virtual time' env GOGC=400 go test -count=1 -run '^(TestRoomModel|TestRoomModelOnRedis|TestRestoredForMinutes|$(MINUTES))$$' ./cluster ./cluster/affinity/...

cpus: ## the tables of arm64, in an emulator, and the tests of the core in 32 bits
	$(STEP) 'other CPUs' scripts/cpus.sh

fuzz: ## fuzz each target for FUZZTIME, 300ms by default
	$(STEP) 'fuzzing' scripts/fuzz.sh

bench-once: ## one iteration of each benchmark, as a check that it runs
	$(STEP) 'one iteration of each benchmark' $(EACH) "$(CURDIR)/scripts/bench-once.sh"

routing-clients: ## 1,000 routing clients of three agents through 100 changes, one agent killed: how late, as p99; takes a minute, needs an idle machine
	$(STEP) 'a crowd of routing clients' go test -count=1 -v -run 'TestRoutingClients$$' ./cmd/roost -clients 1000

handoff: ## 10,000 random changes with handoff, and the gap at 3, 50 and 300 nodes; takes minutes
	$(STEP) 'random changes' go test -count=1 -timeout 30m -run 'TestHandoff$$' ./internal/sim -changes 10000
	$(STEP) 'gaps' go test -count=1 -timeout 60m -v -run TestHandoffGap ./internal/sim -long

scale: ## how large a cluster can be: a table of simulations; takes hours, or NODES="100 300" FOR=2m
	$(STEP) 'a day of recorded traffic, and large fleets' go test -count=1 -timeout 60m -run 'TestRecordedTraffic$$|TestScale$$|TestCrashesMakeOneTable$$|TestOneWayNetwork$$|TestAgreement$$|TestKillsInALargeFleet$$|TestLoss' ./internal/sim -long
	$(STEP) 'how large a cluster can be' scripts/scale.sh

compare: ## BenchmarkRest of COMMIT and of this tree: agreement, leases, traffic, CPU; takes half an hour
	$(STEP) 'compare with $(COMMIT)' scripts/compare.sh $(COMMIT)

idle: ## what an idle agent among 100 processes costs, on Linux
	$(STEP) 'idle agents' scripts/idle.sh

chaos: ## 10,000 random schedules of faults, or SEEDS=…, the search for planted bugs, make floods and make networks; takes an hour
	$(STEP) 'schedules of faults' go test -count=1 -v -timeout 24h -run Schedules ./internal/sim/chaos -seeds $(or $(SEEDS),10000)
	$(STEP) 'planted bugs' go test -count=1 -v -timeout 2h -run Planted ./internal/sim/chaos -hunt
	$(FLOODS)
	$(NETWORKS)

outages: ## rooms while Redis loses data or is away, as a table, with 100,000 rooms at FLUSHALL, and with seven minutes without Redis; takes ten minutes
	$(STEP) 'outages of Redis' go test -count=1 -v -timeout 30m -run 'Test(Outages|FlushedRooms|RedisAway)$$' ./internal/fleettest -long

redis-versions: ## the tests of the store on another server: REDIS_SERVER=path of a redis-server or valkey-server
	$(STEP) 'the store on $(REDIS_SERVER)' sh -c 'REDIS_SERVER="$$(command -v "$(REDIS_SERVER)")" && export REDIS_SERVER && "$$REDIS_SERVER" --version && go test -count=1 -timeout 20m ./internal/redistest ./cluster/affinity/redisstore'

mediamtx: ## the recipe for MediaMTX, on a released program: MEDIAMTX=path
	$(STEP) 'MediaMTX behind the proxy' sh -c 'MEDIAMTX="$$(command -v "$(MEDIAMTX)")" && export MEDIAMTX && cd internal/e2e && go test -count=1 -v -run TestMediaMTX ./recipes'

floods: ## unauthenticated peers and holders of the key at the gossip port of real agents, as tables; takes fifteen minutes
	$(FLOODS)

models: ## every state of the larger worlds of the models of rooms and handoff, and 3,500 random walks on Redis; takes minutes
	$(STEP) 'the model of rooms' go test -count=1 -v -timeout 1h -run 'TestRoomModel(OnRedis)?$$' ./cluster/affinity -long
	$(STEP) 'the model of handoff' go test -count=1 -v -run 'TestHandoff$$' ./internal/handoff -long

soak: ## calls of 300 bots for FOR=30m, with a fault every 20 s, as a table of gaps and of growth; PICTURES=30 needs an idle machine
	$(STEP) 'calls under faults' sh -c 'cd examples/sfu && go test -count=1 -v -timeout 24h -run "TestSoak$$" . -soak $(or $(FOR),30m) -pictures $(or $(PICTURES),10)'

track-record: ## repeat the bugs in docs/dev/track-record.md: each must show without its fix, and not with it; takes five minutes, and longer the first time
	$(STEP) 'track record' scripts/track-record.sh

newcomer: ## the README's two commands on a minimal Debian, with the rights of a container, and beside twenty busy processes; needs root and the network, takes ten minutes
	$(STEP) 'a newcomer' scripts/newcomer.sh

vuln: build ## known vulnerabilities of the dependencies, in what roost calls; needs the network
	$(STEP) 'vulnerabilities' $(EACH) go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...
	$(STEP) 'vulnerabilities of the binary' go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -mode binary bin/roost

networks: ## real agents with faults of networks and processes, as a table; takes ten minutes and needs root; EXE=… measures another binary
	$(NETWORKS)

clean: ## remove the output of the build
	$(STEP) 'clean' rm -rf bin dist
