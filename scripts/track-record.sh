#!/usr/bin/env bash
# track-record.sh [FIX...]: repeats the rows of docs/dev/track-record.md, or only those of the named commits. In a
# worktree of the fix, it takes the fix back except for its tests, expects that the row's test fails with the row's text, and
# then that the test passes at the fix.
set -euo pipefail

cd "$(dirname "$0")/.."
page=docs/dev/track-record.md
dir=$(mktemp -d)
tree=$dir/tree log=$dir/log
trap 'git worktree remove --force "$tree" 2>/dev/null || true; rm -rf "$dir"; git worktree prune' EXIT
trap 'exit 130' INT
[[ $(git rev-parse --is-shallow-repository) == false ]] || { echo 'this clone lacks the history: run git fetch --unshallow' >&2; exit 2; }
git worktree add --quiet --detach "$tree"

# code TEXT [N]: what stands in the first or Nth pair of backquotes.
code() { cut -d '`' -f $((2 * ${2:-1})) -s <<<"$1"; }

# run FLAGS... PACKAGE TEST
run() {
	local args=("${@:1:$#-1}") test=${!#}
	go test -C "$tree" -vet=off -timeout 10m -count=1 -v -run "^${test//\//\$/^}\$" "${args[@]}" >"$log" 2>&1
}

at() {
	git -C "$tree" reset --quiet --hard && git -C "$tree" clean -qfdx && git -C "$tree" checkout --quiet "$1"
}

# without FIX [PATH]: at the fix, takes back its changes of this path that are no tests.
without() {
	at "$1" && git -C "$tree" diff --binary "$1" "$1^" -- "${2:-.}" ':!*_test.go' ':!*/testdata/*' | git -C "$tree" apply --whitespace=nowarn
}

# repeat FIX PATH TEXT TEST...: prints why the row can't be repeated.
repeat() {
	local fix=$1 path=$2 text=$3 test=${!#}
	shift 3
	if ! without "$fix" "$path"; then
		echo 'the fix cannot be undone'
	elif run "$@"; then
		echo 'the test passes without the fix'
	elif ! grep -q "^=== RUN   $test" "$log"; then
		echo 'the test does not compile or is not found without the fix'
	elif ! grep -qF -- "$text" "$log"; then
		echo "without the fix, the test fails without this text: $text"
	elif ! at "$fix" || ! run "$@"; then
		echo 'the test fails with the fix, too'
	elif ! grep -q "^--- PASS: ${test%%/*} " "$log"; then
		echo 'the test is skipped with the fix'
	fi
}

for fix in "$@"; do
	grep -qE "^\|.*\| \`$fix\`" "$page" || { echo "no row of $page has the fix $fix" >&2; exit 2; }
done
rows=0 good=0 other=0
while IFS='|' read -r _ _ _ fixed shown text _; do
	fix=$(code "$fixed") test=$(code "$shown")
	[[ $# -eq 0 || " $* " == *" $fix "* ]] || continue
	if [[ $test != *./* ]]; then
		other=$((other + 1))
		printf 'not repeatable  %s %s\n' "$fix" "$shown"
		continue
	fi
	rows=$((rows + 1))
	read -ra words <<<"$test"
	why=$(repeat "$fix" "$(code "$fixed" 2)" "$(code "$text")" "${words[@]}")
	if [[ -z $why ]]; then
		good=$((good + 1))
		printf 'reproduced      %s %s\n' "$fix" "$test"
	else
		printf 'NOT REPRODUCED  %s %s: %s\n' "$fix" "$test" "$why"
		grep -vE '^=== ' "$log" | tail -n 30
	fi
done < <(grep -E '^\|.*\| `[0-9a-f]{8}`' "$page")

printf '%d of %d rows reproduced, %d not repeatable, at %s with %s\n' \
	"$good" "$rows" "$other" "$(git log -1 --format='%h of %as')" "$(go env GOVERSION)"
((good == rows))
