#!/usr/bin/env bash
# Says which tests will be skipped here, since `go test` prints nothing about them: without a release before this commit,
# or where no networks can be made.
set -euo pipefail

cd "$(dirname "$0")/.."
if [[ -z $(git tag --list 'v*' --merged HEAD --no-contains HEAD) ]]; then
	cat <<-END
		NOTE: TestMixedReleases is SKIPPED: git finds no release before this commit, a tag v*. In a shallow clone, run: git fetch --unshallow --tags
	END
fi
if ! why=$(internal/e2e/netlab/namespaces.sh true 2>&1); then
	cat <<-END
		NOTE: internal/e2e/netlab is SKIPPED. Real agents in networks with faults need root, in a container with --privileged ($why)
	END
fi
