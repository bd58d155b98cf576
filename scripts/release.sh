#!/usr/bin/env bash
# release.sh VERSION [DIR]: builds the release of this commit into DIR, dist/VERSION by default:
# for each platform an archive with the binary, README and licences, for Linux an image, too; the
# Helm chart; the npm packages; an SPDX bill of the modules in the binaries; SHA256SUMS of them; and notes.md, the
# section of CHANGELOG.md. It publishes nothing.
#
# The same commit and the same release of Go make the same archives on any machine: the build knows
# no path, no C compiler and no setting of the environment, and all files have the time of the commit.
# PLATFORMS='linux/amd64 …' builds fewer.
set -euo pipefail
umask 022

fail() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}

cd "$(dirname "$0")/.."
version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "'$version' is no version such as v0.1.0"
dir=$(realpath -m "${2:-dist/$version}")
[[ ! -e $dir ]] || fail "$dir exists"
# Of Linux and BSD, only GNU tar sets owners and times.
tar --version | grep -q 'GNU tar' || fail 'needs GNU tar'

# A release is a commit, with all that prepare-release.sh writes.
[[ -z $(git status --porcelain) ]] || fail 'the tree has changes that are not committed'
commit=$(git rev-parse HEAD)
tagged=$(git rev-parse -q --verify "refs/tags/$version^{commit}") || tagged=$commit
[[ $tagged == "$commit" ]] || fail "the tag $version is at commit $tagged, not at $commit"
grep -qE "^## \[${version:1}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
	fail "CHANGELOG.md has no heading '## [${version:1}] - YYYY-MM-DD': run scripts/prepare-release.sh $version"
grep -qF "[${version:1}]: " CHANGELOG.md || fail "CHANGELOG.md has no link for [${version:1}]"
[[ -z $(awk '/^## \[Unreleased\]$/ { on = 1; next } /^## / { on = 0 } on && NF' CHANGELOG.md) ]] ||
	fail "CHANGELOG.md has lines under Unreleased: move them to the section of ${version:1}"
grep -qF "roost_${version}_linux_amd64.tar.gz" docs/install.md || fail "docs/install.md is not of $version"
grep -qF "ghcr.io/roost-cluster/roost:$version," deploy/compose/compose.yaml || fail "deploy/compose/compose.yaml is not of $version"
for nested in cluster/clusterotel cluster/routing/routinggrpc cluster/kubernetes; do
	grep -qE "^\s+github.com/roost-cluster/roost $version$" $nested/go.mod ||
		fail "$nested/go.mod does not require roost $version"
done
diff -r lease/testdata/wire/next "lease/testdata/wire/$version" >/dev/null 2>&1 ||
	fail "lease/testdata/wire/$version is no copy of lease/testdata/wire/next: copy it, so that later releases must read these messages"
chart=deploy/helm/roost
grep -qx "version: ${version:1}" $chart/Chart.yaml && grep -qx "appVersion: $version" $chart/Chart.yaml ||
	fail "$chart/Chart.yaml is not of $version"

# Settings of this machine would be in the binary. go.mod has the oldest versions of the dependencies: a release has the newest.
export CGO_ENABLED=0 GOFLAGS='-mod=readonly -modfile=internal/tools/newest.mod' GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOFIPS140=off
epoch=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pack FOLDER NAME FILE: the folder FOLDER/NAME, with nothing of this machine.
pack() {
	tar --create --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
		--directory="$1" "$2" | gzip --no-name >"$dir/$3"
}

# licences: those of the modules in the binary. Most ask to be passed on with it.
licences() {
	printf 'roost contains the following modules.\n'
	printf '\n==== Go\n\n'
	cat "$(go env GOROOT)/LICENSE"
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/roost |
		LC_ALL=C sort -u | while read -r path version at; do
		printf '\n==== %s %s\n\n' "$path" "$version"
		cat "$at"/LICEN[CS]E*
	done
}

builder=
for each in buildah podman 'docker buildx'; do
	# docker alone is only a client.
	probe=info
	[[ $each == docker* ]] && probe='inspect --bootstrap'
	if $each $probe >/dev/null 2>&1; then
		builder=$each
		break
	fi
done
[[ $builder ]] || echo 'NOTE: no images. Install buildah or podman, or start a docker with buildx.'

# image NAME PLATFORM: the image of the files in $work/NAME, as an archive that skopeo, podman and docker load.
image() {
	local file=$dir/$1.oci.tar tag=localhost/roost:$version-${2#*/}
	local args=(--platform "$2" --file deploy/docker/Dockerfile --tag "$tag")
	case $builder in
	buildah)
		buildah build --timestamp "$epoch" "${args[@]}" "$work/$1"
		buildah push "$tag" "oci-archive:$file:$tag"
		;;
	podman)
		podman build --timestamp "$epoch" "${args[@]}" "$work/$1"
		podman save --format oci-archive --output "$file" "$tag"
		;;
	docker*)
		SOURCE_DATE_EPOCH=$epoch docker buildx build --provenance=false "${args[@]}" \
			--output "type=oci,dest=$file,rewrite-timestamp=true" "$work/$1"
		;;
	esac
}

mkdir -p "$dir"
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	name=roost_${version}_${GOOS}_$GOARCH
	exe=roost
	[[ $GOOS != windows ]] || exe=roost.exe
	printf -- '-- %s\n' "$name"
	mkdir "$work/$name"
	# With -buildvcs the version in the build info would depend on whether the tag is there yet.
	stamp=github.com/roost-cluster/roost/internal/release
	go build -trimpath -buildvcs=false -ldflags "-s -w -X $stamp.Version=$version -X $stamp.Commit=$commit" -o "$work/$name/$exe" ./cmd/roost
	install -m 644 LICENSE README.md "$work/$name"
	licences >"$work/$name/THIRD_PARTY_LICENSES"
	pack "$work" "$name" "$name.tar.gz" # Windows unpacks it, too: it has a tar since 2018
	if [[ $builder && $GOOS == linux ]]; then
		image "$name" "$platform"
	fi
done
unset GOOS GOARCH
go run ./internal/release/sbom "$version" "$commit" "$epoch" "$dir" "$work"/roost_* >"$dir/roost_$version.spdx.json"

pack "${chart%/*}" "${chart##*/}" "roost-${version:1}.tgz"

# Not with npm pack, because another release of npm could compress differently.
scripts/npm.sh "$version" "$work/npm"
for name in routing reconnect; do
	pack "$work/npm/$name" package "roost-cluster-$name-${version:1}.tgz"
done

(cd "$dir" && LC_ALL=C sha256sum roost[-_]* >SHA256SUMS && cat SHA256SUMS)
awk -v heading="## [${version:1}] - " 'index($0, heading) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md >"$dir/notes.md"
