#!/usr/bin/env bash
# each-module.sh [-nested] COMMAND...: runs the command in the root of every Go module, or of
# all but the root module. The pattern ./... stops at a nested go.mod. internal/tools has no code, only pins.
set -euo pipefail

cd "$(dirname "$0")/.."
least=0
[[ $1 != -nested ]] || { least=2; shift; }
modules=$(find . -mindepth "$least" -name go.mod -not -path '*/.*/*' -not -path './internal/tools/*' | sort)
for mod in $modules; do
	dir=$(dirname "$mod")
	[[ $dir == . ]] || printf -- '-- module %s\n' "$dir"
	(cd "$dir" && "$@")
done
