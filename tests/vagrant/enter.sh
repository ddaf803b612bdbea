#!/usr/bin/env bash
# Called by run.sh in new namespaces: makes ROOT this process's root, once there is a word in PIPE, and goes on inside.
set -euo pipefail
root=$1 pipe=$2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
for place in run tmp; do mount -t tmpfs "$place" "$root/$place"; done
echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"     # slirp4netns
read -r _ <"$pipe"
cd "$root"
pivot_root . .      # not chroot: virtiofsd wants a root that is a mount
umount -l .
exec env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin /root/inside.sh
