#!/usr/bin/env bash
# api.sh: compares the exported Go API of each released module with the last release. An incompatible change is an error,
# except before v1.0.0 if CHANGELOG.md has a line "- Breaking: …" above that release.
set -euo pipefail

cd "$(dirname "$0")/.."
tag=$(git -c versionsort.suffix=- tag --list 'v*' --sort=-version:refname --merged HEAD --no-contains HEAD | sed -n 1p)
if [[ -z $tag ]]; then
	echo 'NOTE: the API is NOT COMPARED: git finds no release before this commit, a tag v*. In a shallow clone, run: git fetch --unshallow --tags'
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOBIN=$work go install golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4
mkdir "$work/old"
git archive "$tag" | tar -x -C "$work/old"

broken=
for mod in . cluster/clusterotel cluster/routing/routinggrpc cluster/kubernetes; do
	[[ -f $work/old/$mod/go.mod ]] || continue # the last release does not have it
	path=$(awk '$1 == "module" { print $2 }' "$mod/go.mod")
	(cd "$work/old/$mod" && "$work/apidiff" -m -w "$work/old.api" "$path")
	(cd "$mod" && "$work/apidiff" -m -w "$work/new.api" "$path")
	changes=$("$work/apidiff" -m -incompatible "$work/old.api" "$work/new.api" 2>"$work/err") || { cat "$work/err" >&2; exit 1; }
	# Nobody imports a program.
	changes=$(grep -vE '^- (package )?([^ ]*/)?(cmd|examples)/' <<<"$changes" || true)
	[[ -z $changes ]] || broken+="$path"$'\n'"$changes"$'\n'
done
if [[ -z $broken ]]; then
	printf 'The API is compatible with %s.\n' "$tag"
	exit
fi
printf 'Incompatible with %s:\n%s' "$tag" "$broken"
if [[ $tag != v0.* ]]; then
	echo 'Only a new major version may break the API.'
	exit 1
fi
if ! sed "/^## \[${tag:1}\]/,\$d" CHANGELOG.md | grep -q '^- Breaking: '; then
	printf 'Tell users what to change, in CHANGELOG.md above %s, in a line that begins with "- Breaking: ".\n' "$tag"
	exit 1
fi
