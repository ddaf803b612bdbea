#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Loads and unloads NDM-TCP on this machine; called by the Makefile, which passes BUILD, KDIR, BTF.
#
#   ndm.sh check-headers | check-btf | check-load | load | unload | uninstall | bpf-load | bpf-unload | status
#
# Either everything is registered afterwards or nothing is. Each failure names its remedy.
set -u

BUILD=${BUILD:-build} KDIR=${KDIR:-/lib/modules/$(uname -r)/build}
BTF=${BTF:-/sys/kernel/btf/vmlinux} BPFTOOL=${BPFTOOL:-bpftool}
PROC=${PROC:-/proc} SYSFS=${SYSFS:-/sys}     # the tests put others here
AVAILABLE=$PROC/sys/net/ipv4/tcp_available_congestion_control
ALLOWED=$PROC/sys/net/ipv4/tcp_allowed_congestion_control

say() { printf 'ndm: %s\n' "$*"; }
die() { printf 'ndm: %s\n' "$*" >&2; exit 1; }

available() { tr ' ' '\n' <"$AVAILABLE" | grep -qx "$1"; }
module_loaded() { [ -d "$SYSFS/module/ndm_tcp" ]; }
need_root() { [ "$(id -u)" = 0 ] || die "$1 needs root: sudo make $1"; }
bpf_ids() { "$BPFTOOL" struct_ops list | sed -n 's/^\([0-9]*\): *bpf_ndm2\{0,1\} .*/\1/p'; }

check_headers() {
  [ -e "$KDIR/Makefile" ] || die "no kernel headers in $KDIR: apt-get install linux-headers-$(uname -r), or give" \
    "KDIR=/path/to/the/kernel's/build; without any: make bpf-load needs none"
}

check_btf() {
  [ -r "$BTF" ] || die "$BTF is missing: this kernel has no BTF (CONFIG_DEBUG_INFO_BTF), so no BPF congestion control;" \
    "use the module (make load)"
}

check_kernel() {
  release=$(uname -r)
  major=${release%%.*} minor=${release#*.} minor=${minor%%[!0-9]*}
  [ "$((major * 100 + minor))" -ge 519 ] || die "kernel $release is too old: 5.19 or newer is needed (tcp_snd_cwnd)"
}

check_modules() {
  [ -e "$PROC/modules" ] || die "this kernel can't load modules (CONFIG_MODULES): use make bpf-load, or the lab kernel"
  if grep -qsE '\[(integrity|confidentiality)\]' "$SYSFS/kernel/security/lockdown" ||
     grep -qsx Y "$SYSFS/module/module/parameters/sig_enforce"; then
    say "this kernel takes signed modules only (lockdown, Secure Boot): sign ndm_tcp.ko, or use make bpf-load" >&2
  fi
}

check_load() { need_root load; check_kernel; check_modules; }

load() {
  check_load
  if module_loaded; then say "already loaded"; status; return; fi
  for name in ndm_tcp ndm2; do
    available "$name" && die "the name $name is taken by something other than this module: unload that first"
  done
  insmod "$BUILD/ndm_tcp.ko" || die "the kernel refused ndm_tcp.ko; its own words: dmesg | tail"
  status
}

unload() {
  need_root unload
  module_loaded || { say "not loaded"; return; }
  users=$(cat "$SYSFS/module/ndm_tcp/refcnt")
  rmmod ndm_tcp || die "ndm_tcp is in use by $users sockets, listeners included: end those connections and restart" \
    "the servers that inherited it (ss -tanpi | grep -B1 ndm), then again"
}

uninstall() {
  need_root uninstall
  find "/lib/modules/$(uname -r)" -name 'ndm_tcp.ko*' -exec rm -v {} +
  depmod
}

bpf_load() {
  need_root bpf-load; check_btf
  command -v "$BPFTOOL" >/dev/null || die "bpftool is missing: apt-get install bpftool"
  for name in bpf_ndm bpf_ndm2; do
    available "$name" && die "$name is registered already: make bpf-unload first"
  done
  "$BPFTOOL" struct_ops register "$BUILD/ndm_bpf.o" || { bpf_drop; die "the kernel refused the BPF programs (above)"; }
  for name in bpf_ndm bpf_ndm2; do
    available "$name" || { bpf_drop; die "$name could not be registered (above); nothing is left registered"; }
  done
  status
}

bpf_drop() { for id in $(bpf_ids); do "$BPFTOOL" struct_ops unregister id "$id" || return 1; done; }

bpf_unload() {
  need_root bpf-unload
  [ -n "$(bpf_ids)" ] || { say "not loaded"; return; }
  bpf_drop >/dev/null || die "bpftool could not unregister (above)"
  say "unregistered; connections that use them keep them until they end"
}

status() {
  for name in ndm_tcp ndm2 bpf_ndm bpf_ndm2; do
    if ! available "$name"; then say "$name: not available"
    elif tr ' ' '\n' <"$ALLOWED" | grep -qx "$name"; then say "$name: available to everyone"
    else say "$name: available to root (others: add it to net.ipv4.tcp_allowed_congestion_control)"; fi
  done
  module_loaded && say "module $(cat "$SYSFS/module/ndm_tcp/version"), held by $(cat "$SYSFS/module/ndm_tcp/refcnt") sockets"
  return 0
}

case ${1:-} in
  check-headers) check_headers ;;
  check-btf) check_btf ;;
  check-load) check_load ;;
  load|unload|uninstall|status) "$1" ;;
  bpf-load) bpf_load ;;
  bpf-unload) bpf_unload ;;
  *) die "usage: ndm.sh check-headers|check-btf|check-load|load|unload|uninstall|bpf-load|bpf-unload|status" ;;
esac
