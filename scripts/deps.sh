#!/usr/bin/env bash
# Installs, with apt, the programs that the tests need in addition to Go, make and git.
# Does nothing if all are installed.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # of ip and nft: on Debian they are in the PATH of root alone

scripts/skipped.sh

# command  packages with it
#
# redis-check-rdb is the Redis server, from a package that starts no service. qemu-aarch64
# runs the placement vectors as on an ARM machine. A test runs the commands of the pages,
# which need curl and jq. npm brings axe-core to a test of the dashboard, and a linter and compilers
# to tests of the API. ip and nft make networks with faults, as root. A package with ! would start
# a service, so only its programs are installed: prometheus, and promtool with it.
table='
gcc  gcc libc6-dev
redis-check-rdb  redis-tools
qemu-aarch64  qemu-user
chromium  chromium
node  nodejs
python3  python3
npm  npm
curl  curl
jq  jq
systemd-analyze  systemd
ip  iproute2
nft  nftables
prometheus  !prometheus
'

missing=()
alone=()
while read -r command packages; do
	[[ -z $command ]] && continue
	command -v "$command" >/dev/null && continue
	if [[ $packages == !* ]]; then
		alone+=("${packages#!}")
		continue
	fi
	read -ra words <<<"$packages"
	missing+=("${words[@]}")
done <<<"$table"

# By its argv[0] the program is a server, also where its own --version fails: Redis server v=7.0.15 …
redis_is_new() {
	[[ -n ${REDIS_SERVER-} ]] && return
	local version
	version=$(exec -a redis-server redis-check-rdb --version)
	[[ $version =~ v=([0-9]+) ]] && ((BASH_REMATCH[1] >= 7)) && return
	printf 'The tests need Redis 7 or newer; REDIS_SERVER names another server. This is:\n  %s\n' "$version" >&2
	return 1
}
if ((${#missing[@]} + ${#alone[@]} == 0)); then
	redis_is_new
	exit
fi

install=(apt-get install -y --no-install-recommends "${missing[@]}")
wanted="${missing[*]} ${alone[*]}"
if ! command -v apt-get >/dev/null; then
	printf 'Programs of these Debian packages are missing. Please install them:\n  %s\n' "$wanted" >&2
	exit 1
fi
as_root=()
if ((EUID != 0)); then
	# Without a terminal sudo would hang or fail at its password prompt.
	if ! { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }; then
		printf 'The tests need some packages and this user cannot install them. Please run as root:\n  %s\n' "$0" >&2
		exit 1
	fi
	as_root=(sudo)
fi
printf 'installing %s\n' "$wanted"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
for package in "${alone[@]}"; do
	dir=$(mktemp -d)
	(cd "$dir" && apt-get download -q "$package" && dpkg-deb --extract ./*.deb .)
	"${as_root[@]}" install "$dir"/usr/bin/* /usr/local/bin/
	rm -r "$dir"
done
redis_is_new
