#!/usr/bin/env bash
# Makes a Vagrant box (libvirt) of Debian's packages: what a published box has, and a kernel that starts without a boot
# loader, because on an emulated processor that saves a minute.
#
#   tests/vagrant/box.sh ROOT      ROOT has vagrant; makes debian.box, vmlinuz, initrd in ROOT/root/box
#
# The guest trusts the certificates that this machine trusts: where a mirror lies behind a proxy, it must.
set -euo pipefail

arch=$(dpkg --print-architecture)
packages=systemd-sysv,udev,dbus,openssh-server,sudo,iproute2,kmod,iputils-ping,ca-certificates,procps,ifupdown
packages+=,isc-dhcp-client,initramfs-tools,zstd,linux-image-$arch

# Runs in mmdebstrap, before the kernel's package makes the initial file system.
small_initrd() {
  mkdir -p "$1/etc/initramfs-tools/conf.d"
  printf 'MODULES=list\nCOMPRESS=gzip\n' >"$1/etc/initramfs-tools/conf.d/small"
  printf 'virtio_pci\nvirtio_blk\next4\n' >"$1/etc/initramfs-tools/modules"
}

# Vagrant's conventions for a box: this user, without a password for sudo, with the public key that everyone knows,
# which Vagrant replaces at the first start.
vagrant_user() {
  local home=$1/home/vagrant
  chroot "$1" useradd --create-home --shell /bin/bash vagrant
  echo 'vagrant ALL=(ALL) NOPASSWD: ALL' >"$1/etc/sudoers.d/vagrant"
  echo 'PubkeyAcceptedAlgorithms +ssh-rsa' >"$1/etc/ssh/sshd_config.d/vagrant.conf"
  install -d -m 700 "$home/.ssh"
  install -m 600 "$2" "$home/.ssh/authorized_keys"
  chroot "$1" chown -R vagrant: /home/vagrant
}

network() {
  printf 'auto lo\niface lo inet loopback\nauto eth0\niface eth0 inet dhcp\n' >"$1/etc/network/interfaces"
  echo fairbed >"$1/etc/hostname"
  echo '127.0.0.1 localhost fairbed' >"$1/etc/hosts"
  cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
  printf '%s=/etc/ssl/certs/ca-certificates.crt\n' SSL_CERT_FILE PIP_CERT >>"$1/etc/environment"
}

# What an emulated machine needs besides; the rest is for the checkout's own Vagrantfile to say.
box_vagrantfile() {
  cat <<RUBY
Vagrant.configure("2") do |config|
  config.vm.boot_timeout = 900
  config.vm.provider "libvirt" do |vm|
    vm.driver = "qemu"
    vm.cpu_mode = "maximum"
    vm.kernel = "$inside/vmlinuz"
    vm.initrd = "$inside/initrd"
    vm.cmd_line = "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off nokaslr tsc=reliable no_timer_check quiet"
    vm.disk_driver cache: "unsafe"
    vm.graphics_type = "none"
    vm.video_type = "none"
  end
end
RUBY
}

case $1 in
  --essential) small_initrd "$2"; exit ;;
  --customize) vagrant_user "$2" "$3"; network "$2"; exit ;;
esac
root=$1 inside=/root/box
out=$root$inside tree=$root$inside/tree
key=$(find "$root/usr" -name vagrant.pub -path '*/keys/*' | head -n 1)
rm -rf "$out"; mkdir -p "$out"
mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' --include="$packages" \
  --essential-hook="bash '$0' --essential \"\$1\"" --customize-hook="bash '$0' --customize \"\$1\" '$key'" \
  bookworm "$tree"
cp "$tree"/boot/vmlinuz-* "$out/vmlinuz"
cp "$tree"/boot/initrd.img-* "$out/initrd"
truncate -s 10G "$out/disk.raw"
mke2fs -q -t ext4 -d "$tree" "$out/disk.raw"
chroot "$root" qemu-img convert -O qcow2 "$inside/disk.raw" "$inside/box.img"
rm -rf "$tree" "$out/disk.raw"
echo '{"provider": "libvirt", "format": "qcow2", "virtual_size": 10}' >"$out/metadata.json"
box_vagrantfile >"$out/Vagrantfile"
tar -C "$out" -cf "$out/debian.box" metadata.json Vagrantfile box.img
rm -f "$out/box.img" "$out/metadata.json" "$out/Vagrantfile"
