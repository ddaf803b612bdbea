#!/usr/bin/env bash
# Called by enter.sh where Vagrant is: up, the main job, destroy.
set -euo pipefail

step() {
  local began=$SECONDS
  printf '\n== %s\n' "$*" >&2
  "$@" || { printf '== failed with %s after %s s\n' "$?" $((SECONDS - began)) >&2; exit 1; }
  printf '== %s s\n' $((SECONDS - began)) >&2
}

# What a test that was killed has left: this root is the test's alone, and nothing runs when it begins.
forget_machines() {
  rm -rf /root/.vagrant.d /etc/libvirt/qemu/*.xml /var/lib/libvirt/qemu/*
  find /var/lib/libvirt/images -type f -delete
}

start_libvirt() {
  mkdir -p /run/libvirt /run/lock
  printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'cgroup_controllers = []' \
    'namespaces = []' 'remember_owner = 0' 'stdio_handler = "file"' >/etc/libvirt/qemu.conf
  ip link set lo up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  libvirtd --daemon
  timeout 20 sh -c 'until virsh --quiet version >/dev/null 2>&1; do sleep 0.2; done'
}

export VAGRANT_DEFAULT_PROVIDER=libvirt VAGRANT_NO_COLOR=1 VAGRANT_CHECKPOINT_DISABLE=1
forget_machines
cd /root/fairbed
box=$(sed -n 's/.*config.vm.box = "\(.*\)".*/\1/p' Vagrantfile)
step start_libvirt
step vagrant --no-tty box add --force --name "$box" /root/box/debian.box
step vagrant validate
step vagrant --no-tty up
step vagrant ssh -c 'uname -r; lsmod | grep -E "^(ndm_tcp|tcp_bbr|openvswitch) "; sudo dkms status'
step vagrant ssh -c 'cd /vagrant && sudo python -m lab doctor'
step vagrant ssh -c 'cd /vagrant && sudo python -m experiments.dumbbell --duration 20s'
step vagrant destroy --force
virsh --quiet list --all
