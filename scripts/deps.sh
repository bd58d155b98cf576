#!/usr/bin/env bash
# Installs, with apt, the programs that the tests need beside Go, make and git.
# Costs nothing when they are all there.
set -euo pipefail

# command  packages that bring it
#
# redis-check-rdb is the Redis server, under the name by which a package has it that
# starts no service. qemu-aarch64 runs the placement vectors as an ARM machine would.
table='
gcc  gcc libc6-dev
redis-check-rdb  redis-tools
qemu-aarch64  qemu-user
'

missing=()
while read -r command packages; do
	[[ -z $command ]] && continue
	command -v "$command" >/dev/null && continue
	read -ra words <<<"$packages"
	missing+=("${words[@]}")
done <<<"$table"
((${#missing[@]})) || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ! command -v apt-get >/dev/null; then
	printf 'Not found here: what these Debian packages bring. Please install it:\n  %s\n' "${missing[*]}" >&2
	exit 1
fi
as_root=()
if ((EUID != 0)); then
	# Without a terminal sudo could only hang or fail on its password prompt.
	if ! { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }; then
		printf 'The tests need some packages and this user cannot install them. Please run as root:\n  apt-get update && %s\n' "${install[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
printf 'installing %s\n' "${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
