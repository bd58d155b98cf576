#!/usr/bin/env bash
# prepare-release.sh VERSION: writes the version and today's date into all files that have them. What is under Unreleased
# in CHANGELOG.md becomes the section of the release. Each release keeps a copy of its messages, which all later releases
# must read. If the release was prepared earlier, this updates the date and the messages.
set -euo pipefail

fail() {
	printf 'prepare-release: %s\n' "$*" >&2
	exit 1
}

cd "$(dirname "$0")/.."
version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "'$version' is no version such as v0.1.0"
! git rev-parse -q --verify "refs/tags/$version" >/dev/null || fail "$version is released: it must not change"
grep -qx '## \[Unreleased\]' CHANGELOG.md || fail "CHANGELOG.md has no heading '## [Unreleased]'"
number=${version:1} today=$(date -u +%F)
last=$(sed -n 's/^version: //p' deploy/helm/roost/Chart.yaml)
old=${last//./\\.}

if grep -qF "## [$number] - " CHANGELOG.md; then
	sed -i "s/^## \[${number//./\\.}\] - .*/## [$number] - $today/" CHANGELOG.md
else
	sed -i "s/^## \[Unreleased\]$/&\n\n## [$number] - $today/" CHANGELOG.md
	sed -i -E "s|^(\[Unreleased\]: (.*)/compare/)v.*\.\.\.main$|\1$version...main\n[$number]: \2/compare/v$last...$version|" CHANGELOG.md
fi
sed -i "s/v$old/$version/g; s/-$old\.tgz/-$number.tgz/g; s/^version: $old$/version: $number/" \
	deploy/helm/roost/Chart.yaml deploy/compose/compose.yaml docs/install.md
sed -i -E "s|^(\s+github.com/roost-cluster/roost) v.*|\1 $version|" cluster/clusterotel/go.mod cluster/routing/routinggrpc/go.mod cluster/kubernetes/go.mod
rm -rf "lease/testdata/wire/$version"
cp -r lease/testdata/wire/next "lease/testdata/wire/$version"
