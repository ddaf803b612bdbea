#!/usr/bin/env bash
# A real `vagrant up` of this checkout, the main job in the machine, its results outside, and `vagrant destroy`.
#
#   tests/vagrant/run.sh        an hour on two busy cores, because the machine's processor is emulated (no KVM needed)
#
# Vagrant, libvirt and QEMU are Debian packages in a root of their own (CACHE/vagrant/root), run in namespaces of their
# own with a network of user space: nothing is installed here and nothing is left running. The Vagrantfile is used as it
# is; the box is made here, and added under the name of the published one.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
work=$("$checkout/lab/setup.sh" --where)/vagrant
root=$work/root
packages=vagrant,vagrant-libvirt,libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,dnsmasq-base,iptables
packages+=,openssh-client,iproute2,rsync

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { printf 'fairbed: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "needs root, for namespaces with a network: sudo $0"
for need in mmdebstrap slirp4netns mke2fs:e2fsprogs; do
  command -v "${need%:*}" >/dev/null || die "${need%:*} is missing: apt-get install ${need#*:}"
done

make_root() {
  say "a root with Vagrant, libvirt and QEMU (3 min)"
  rm -rf "$root"; mkdir -p "$work"
  mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' --include="$packages" bookworm "$root"
  touch "$root/complete"
}

make_box() {
  say "a box (2 min)"
  "$here/box.sh" "$root"
  cp "$here/box.sh" "$root/root/box/made-by"
}

# What git would commit, as it lies here now.
copy_checkout() {
  rm -rf "$root/root/fairbed"; mkdir "$root/root/fairbed"
  git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    tar -C "$checkout" --null --ignore-failed-read -T - -c | tar -C "$root/root/fairbed" -x --no-same-owner
}

# $1: the process whose network is to reach this machine's.
give_network() {
  slirp4netns --configure --mtu=65520 --ready-fd=9 "$1" tap0 9>"$work/network" >/dev/null 2>&1 &
  local pid=$!
  timeout 20 sh -c "until [ -s '$work/network' ]; do sleep 0.1; done" || die "slirp4netns could not give a network"
  echo "$pid"
}

[ -e "$root/complete" ] || make_root
cmp -s "$here/box.sh" "$root/root/box/made-by" || make_box
copy_checkout
cp "$here/inside.sh" "$root/root/inside.sh"

rm -f "$work/network" "$work/go"; mkfifo "$work/go"
unshare --net --mount --pid --fork --kill-child --propagation private "$here/enter.sh" "$root" "$work/go" &
outer=$!
# unshare heeds no gentler signal; all that is in its namespaces goes with it.
trap 'kill -KILL "$outer" 2>/dev/null || true; [ -z "${slirp:-}" ] || kill "$slirp" 2>/dev/null || true' EXIT
timeout 20 sh -c "until pgrep -P $outer >/dev/null; do sleep 0.1; done"
slirp=$(give_network "$(pgrep -P "$outer")")
timeout 20 sh -c "echo go >'$work/go'"
wait "$outer"

say "outside: the same record, read here"
"$checkout/.venv/bin/python" -m analysis summary "$root"/root/fairbed/runs/*
ls -l "$root"/root/fairbed/runs/*/figures/overview.png
say "passed"
