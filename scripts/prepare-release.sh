#!/usr/bin/env bash
# prepare-release.sh VERSION: writes the version and today's date into all files that have them. What is under Unreleased
# in CHANGELOG.md becomes the section of the release. Each release keeps a copy of its messages, which all later releases
# must read. If the release was prepared earlier, this updates the date and the messages.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || {
	printf "prepare-release: '%s' is no version such as v0.1.0\n" "$version" >&2
	exit 1
}
number=${version:1} today=$(date -u +%F)
last=$(sed -n 's/^version: //p' deploy/helm/roost/Chart.yaml)

if grep -qF "## [$number] - " CHANGELOG.md; then
	sed -i "s/^## \[${number//./\\.}\] - .*/## [$number] - $today/" CHANGELOG.md
else
	sed -i "s/^## \[Unreleased\]$/&\n\n## [$number] - $today/" CHANGELOG.md
	sed -i -E "s|^(\[Unreleased\]: (.*)/compare/)v.*\.\.\.main$|\1$version...main\n[$number]: \2/compare/v$last...$version|" CHANGELOG.md
fi
sed -i "s/${last//./\\.}/$number/g" deploy/helm/roost/Chart.yaml deploy/compose/compose.yaml docs/install.md
sed -i -E "s|^(\s+github.com/roost-cluster/roost) v.*|\1 $version|" cluster/clusterotel/go.mod cluster/routing/routinggrpc/go.mod cluster/kubernetes/go.mod
rm -rf "lease/testdata/wire/$version"
cp -r lease/testdata/wire/next "lease/testdata/wire/$version"
