#!/usr/bin/env bash
# Installs, with apt, the programs that the tests need beside Go, make and git.
# Costs nothing when they are all there.
set -euo pipefail

# command  packages that bring it
#
# redis-check-rdb is the Redis server, under the name by which a package has it that
# starts no service. qemu-aarch64 runs the placement vectors as an ARM machine would.
# curl and jq are in commands of the pages, which a test runs.
# Of a package with ! the command alone is taken: it would start a service, too.
table='
gcc  gcc libc6-dev
redis-check-rdb  redis-tools
qemu-aarch64  qemu-user
chromium  chromium
node  nodejs
curl  curl
jq  jq
systemd-analyze  systemd
promtool  !prometheus
'

missing=()
alone=()
while read -r command packages; do
	[[ -z $command ]] && continue
	command -v "$command" >/dev/null && continue
	if [[ $packages == !* ]]; then
		alone+=("$command ${packages#!}")
		continue
	fi
	read -ra words <<<"$packages"
	missing+=("${words[@]}")
done <<<"$table"
((${#missing[@]} + ${#alone[@]})) || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
wanted="${missing[*]} ${alone[*]}"
if ! command -v apt-get >/dev/null; then
	printf 'Not found here: what these Debian packages bring. Please install it:\n  %s\n' "$wanted" >&2
	exit 1
fi
as_root=()
if ((EUID != 0)); then
	# Without a terminal sudo could only hang or fail on its password prompt.
	if ! { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }; then
		printf 'The tests need some packages and this user cannot install them. Please run as root:\n  %s\n' "$0" >&2
		exit 1
	fi
	as_root=(sudo)
fi
printf 'installing %s\n' "$wanted"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
for each in "${alone[@]}"; do
	read -r command package <<<"$each"
	dir=$(mktemp -d)
	(cd "$dir" && apt-get download -q "$package" && dpkg-deb --extract ./*.deb .)
	"${as_root[@]}" install "$dir/usr/bin/$command" /usr/local/bin/
	rm -r "$dir"
done
