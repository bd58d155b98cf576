#!/bin/sh
# namespaces.sh COMMAND...: runs the command in a network and a mount namespace of its own. Both end with the
# command. Fails where a process may not have them: without root, and in most containers.
set -eu

# Nothing that is mounted from here on shows outside. In a chroot / is no mount point, but ip netns exec needs one: the
# root of the mount namespace is made private, to which nsenter goes, then / is mounted on itself and entered by /..
# shellcheck disable=SC2016 # the inner shells expand it
exec unshare --net --mount --propagation unchanged sh -euc '
	if ! mount --make-rprivate / 2>/dev/null; then
		nsenter --mount=/proc/self/ns/mnt mount --make-rprivate /
		mount --rbind / /
		set -- chroot /.. sh -euc '\''cd "$0"; exec "$@"'\'' "$PWD" "$@"
	fi
	exec "$@"' sh "$@"
