#!/usr/bin/env bash
# each-module.sh COMMAND...: runs the command in the root of every Go module. The
# pattern ./... stops at a nested go.mod. internal/tools has no code, only pins.
set -euo pipefail

cd "$(dirname "$0")/.."
modules=$(find . -name go.mod -not -path '*/.*/*' -not -path './internal/tools/*' | sort)
for mod in $modules; do
	dir=$(dirname "$mod")
	[[ $dir == . ]] || printf -- '-- module %s\n' "$dir"
	(cd "$dir" && "$@")
done
