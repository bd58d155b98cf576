#!/usr/bin/env bash
# npm.sh VERSION DIR: puts the npm packages of a version such as v0.1.0 into folders of DIR: routing/package and
# reconnect/package. An archive of such a folder is what npm installs.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?} dir=${2:?}
for from in cluster/routing cluster/affinity/reconnect; do
	name=${from##*/}
	to=$dir/$name/package
	mkdir -p "$to"
	install -m 644 LICENSE "$from/$name.mjs" "$from"/npm/* "$to"
	sed "s/\"version\": \"0.0.0\"/\"version\": \"${version:1}\"/" "$from/npm/package.json" >"$to/package.json"
done
