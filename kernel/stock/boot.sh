#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs a command as root on a distribution's own kernel, booted in QEMU; needs no KVM and no root.
#
#   kernel/stock/boot.sh RELEASE COMMAND [ARGUMENT...]
#
# RELEASE is a kernel of this machine (/boot/vmlinuz-RELEASE, /lib/modules/RELEASE). The guest sees this machine's
# files, read-only under memory: what it writes is gone at the end. Its output is this command's, its exit status too
# (125: it did not get that far). Booting takes 10 to 60 s, because the processor is emulated.
#
# STEADY=N counts the guest's time in instructions, 2^N ns each, on one processor: what it measures does not depend on how
# busy this machine is. Its clock jumps over the waits for this machine's files, so warm up first.
#
# OUT=DIRECTORY is writable for the guest, at /run/out.
set -euo pipefail

die() { printf 'fairbed: %s\n' "$*" >&2; exit 125; }

[ $# -ge 2 ] || die "usage: boot.sh RELEASE COMMAND [ARGUMENT...]"
release=$1; shift
image=/boot/vmlinuz-$release
memory=${MEMORY:-1G} processors=${PROCESSORS:-2} limit_s=${LIMIT_S:-900}
[ -r "$image" ] || die "there is no $image that you can read: apt-get install linux-image-$release"
[ -d "/lib/modules/$release/kernel" ] || die "there are no modules in /lib/modules/$release: apt-get install linux-image-$release"
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio; do
  command -v "${need%:*}" >/dev/null || die "${need%:*} is missing: apt-get install ${need#*:}"
done
if [ -n "${OUT:-}" ] && [ ! -d "$OUT" ]; then die "OUT=$OUT is no directory"; fi
busybox=$(command -v busybox)
if ldd "$busybox" >/dev/null 2>&1; then die "$busybox needs libraries, which an initramfs has not: apt-get install busybox-static"; fi

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# The initramfs: busybox, what mounts this machine's files, and the command.
tree=$work/tree
mkdir -p "$tree"/{bin,modules,proc,sys,dev,lower,upper,root}
cp -L "$busybox" "$tree/bin/busybox"
for module in virtio_pci 9pnet_virtio 9p overlay; do
  PATH=$PATH:/sbin:/usr/sbin modprobe -S "$release" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r file; do
  name=$(basename "$file"); name=${name%%.*}.ko
  case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -dcq "$file" ;;
    *.gz) gzip -dc "$file" ;;
    *) cat "$file" ;;
  esac >"$tree/modules/$name"
  echo "$name" >>"$tree/modules/order"
done
{ printf 'cd %q || exit 125\n' "$PWD"; printf '%q ' "$@"; printf '\n'; } >"$tree/command"

cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
fail() { $b echo "fairbed: in the guest: $*" >/dev/ttyS1; $b poweroff -f; }
while read -r module; do $b insmod /modules/$module || fail "insmod $module"; done </modules/order
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /lower || fail "mount of the host's files"
$b mount -t tmpfs upper /upper; $b mkdir /upper/files /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work all /root || fail "mount of the overlay"
for there in /proc /sys /dev; do $b mount --move $there /root$there; done
$b mount -t tmpfs run /root/run; $b mkdir -p /root/run/netns /root/dev/pts
$b mount -t devpts devpts /root/dev/pts
$b cp /command /root/run/command
$b cat >/root/run/first <<'FIRST'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
ln -sfn /proc/self/fd /dev/fd; ip link set lo up
if grep -qw out /sys/bus/virtio/drivers/9pnet_virtio/*/mount_tag; then
  mkdir /run/out; mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 out /run/out
fi
setsid /bin/bash /run/command </dev/null >/dev/ttyS1 2>&1
echo "fairbed-status $?" >/dev/ttyS1
sync; echo o >/proc/sysrq-trigger; sleep 1000
FIRST
exec $b switch_root /root /bin/sh /run/first
INIT
chmod +x "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"

pace=(-accel tcg,thread=multi -smp "$processors")
if [ -n "${STEADY:-}" ]; then pace=(-accel tcg,thread=single -smp 1 -icount "shift=$STEADY,sleep=off"); fi
out=()
if [ -n "${OUT:-}" ]; then
  out=(-fsdev "local,id=out,path=$OUT,security_model=none" -device virtio-9p-pci,fsdev=out,mount_tag=out)
fi
timeout --foreground "$limit_s" qemu-system-x86_64 -M q35 "${pace[@]}" -cpu max -m "$memory" \
  -nodefaults -no-user-config -display none -no-reboot -serial "file:$work/console" -serial stdio \
  -kernel "$image" -initrd "$work/initramfs" \
  -fsdev local,id=host,path=/,security_model=none,multidevs=remap,readonly=on -device virtio-9p-pci,fsdev=host,mount_tag=host \
  "${out[@]}" \
  -append "console=ttyS0 panic=-1 tsc=reliable no_timer_check mitigations=off nokaslr selinux=0 apparmor=0 audit=0 random.trust_cpu=on quiet" \
  </dev/null 2>&1 | sed -u -e 's/\r//g' -e "/^fairbed-status /{s///;w $work/status
d}" || true
if [ -s "$work/status" ]; then exit "$(cat "$work/status")"; fi
tail -n 20 "$work/console" >&2 || true
die "the guest ended before the command did, or took more than $limit_s s; the end of its console is above"
