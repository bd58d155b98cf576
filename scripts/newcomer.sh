#!/usr/bin/env bash
# Tries the README's two commands where a newcomer may be: on a minimal Debian that has only Go,
# make and git, with the rights that Docker gives a container by default, and then on this
# machine while twenty other processes want its CPUs.
set -euo pipefail

cd "$(dirname "$0")/.."
[[ $EUID == 0 ]] || {
	echo "newcomer.sh needs root, because it makes a Debian in a folder" >&2
	exit 2
}
for program in debootstrap capsh; do
	command -v "$program" >/dev/null || apt-get install -y debootstrap libcap2-bin
done

tmp=$(mktemp -d)
busy=()
cleanup() {
	((${#busy[@]} == 0)) || kill "${busy[@]}" 2>/dev/null || true
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT

echo "-- a minimal Debian"
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
debootstrap --variant=minbase --include=make,git,ca-certificates "$release" "$tmp/debian" "$mirror" >"$tmp/log" 2>&1 || {
	tail -n 20 "$tmp/log" >&2
	exit 1
}
cp -a "$(go env GOROOT)" "$tmp/debian/usr/local/go"
cp -L /etc/resolv.conf "$tmp/debian/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$tmp/debian/etc/ssl/certs/"
git clone -q . "$tmp/debian/root/roost"

# The capabilities of Docker's default profile. The folder's own /dev and /proc are enough.
kept=cap_chown,cap_dac_override,cap_fowner,cap_fsetid,cap_kill,cap_setgid,cap_setuid,cap_setpcap,cap_net_bind_service,cap_net_raw,cap_sys_chroot,cap_mknod,cap_audit_write,cap_setfcap
all=$(capsh --print | sed -n 's/^Bounding set =//p')
dropped=$(comm -23 <(tr , '\n' <<<"$all" | sort) <(tr , '\n' <<<"$kept" | sort) | paste -sd,)
echo "-- the README's two commands there, with the rights of a container"
cat >"$tmp/debian/root/try" <<-END
	export PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
	export GOPROXY='$(go env GOPROXY)' GOSUMDB='$(go env GOSUMDB)'
	cd /root && git clone -q roost copy && cd copy && make demo
END
unshare --mount --pid --fork --uts --ipc bash -c "
	mount -t proc proc '$tmp/debian/proc'
	mount --bind /dev '$tmp/debian/dev'
	capsh --drop='$dropped' -- -c 'exec chroot \"$tmp/debian\" /bin/bash -e /root/try'"

echo "-- the same here, beside twenty busy processes"
for _ in {1..20}; do
	bash -c 'while :; do :; done' &
	busy+=($!)
done
git clone -q . "$tmp/copy"
(cd "$tmp/copy" && make demo)
