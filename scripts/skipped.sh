#!/usr/bin/env bash
# Says which tests will be skipped here, since `go test` prints nothing about them: without the last release in the
# history, or where no networks can be made.
set -euo pipefail

cd "$(dirname "$0")/.."
release=$(awk -F '"' '/^const lastRelease/ { print $2 }' cmd/roost/release_test.go)
if ! git cat-file -e "$release^{commit}" 2>/dev/null; then
	cat <<-END
		NOTE: TestLastRelease is SKIPPED. It needs the last release, commit $release,
		which this history lacks. In a shallow clone, run: git fetch --unshallow
	END
fi
if ! why=$(internal/netlab/namespaces.sh true 2>&1); then
	cat <<-END
		NOTE: internal/netlab is SKIPPED. Real agents in networks with faults need root, in a container with --privileged ($why)
	END
fi
