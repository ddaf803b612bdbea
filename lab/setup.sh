#!/usr/bin/env bash
# Makes everything that Fairbed needs on this machine: packages, the Python environment, the lab kernel.
#
#   lab/setup.sh            do what is not done yet (a few seconds when all is)
#   lab/setup.sh --tests    and what only tests need: a browser, clang, kernel headers
#   lab/setup.sh --vm       on a virtual machine that is Fairbed's own (the Vagrantfile calls this): its own kernel carries
#                           the runs, with NDM-TCP by DKMS, and its `python` is Fairbed's; the lab kernel is built when
#                           it is first asked for. The checkout belongs to the machine outside and is left as it is.
#   lab/setup.sh --where    print the cache directory
#
# Everything but Debian's packages goes to the cache: FAIRBED_CACHE, or for root /var/cache/fairbed (readable for
# every user of the machine), or for others ~/.cache/fairbed unless /var/cache/fairbed is set up. Each step is
# skipped when it is done and taken up where it was interrupted. Only packages need root.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
system=/var/cache/fairbed
packages=(mininet openvswitch-switch iperf3 iproute2 iputils-ping kmod python3-venv debian-archive-keyring
          gcc libc6-dev make flex bison bc libelf-dev libssl-dev xz-utils)

say() { printf 'fairbed setup: %s\n' "$*" >&2; }
die() { printf 'fairbed setup: %s\n' "$*" >&2; exit 1; }

uneven=()     # only tests need these, and not every archive has them; of several names the first that it has
wanted=(-r requirements.txt --compile-bytecode)     # a run in the lab kernel can't write what it compiles
case ${1:-} in
  '' | --where) ;;
  --tests) packages+=(ethtool dkms pahole clang llvm libbpf-dev)
           uneven=(chromium vagrant bpftool "linux-headers-$(dpkg --print-architecture 2>/dev/null) linux-headers-generic") ;;
  --vm) packages+=(dkms); wanted=(-r pyproject.toml --constraints requirements.txt) ;;     # without what tests need
  *) printf 'fairbed: unknown option %s: lab/setup.sh [--tests | --vm | --where]\n' "$1" >&2; exit 2 ;;
esac

cache=${FAIRBED_CACHE:-}
if [ -z "$cache" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/fairbed
  if [ "$(id -u)" = 0 ] || { [ -e "$system/complete" ] && [ ! -e "$cache/complete" ]; }; then cache=$system; fi
fi
cache=$(realpath -ms "$cache")
[ "${1:-}" = --where ] && { printf '%s\n' "$cache"; exit; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"
  else die "these packages need root, and there is no sudo here. As root: $*"; fi
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null || { say "not Debian: install what corresponds to: ${packages[*]}"; return; }
  add_uneven_packages
  for name in "${packages[@]}"; do is_installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] && return
  say "installing Debian packages (about a minute): ${missing[*]}"
  [ -z "$(dpkg --audit)" ] || as_root dpkg --configure -a >>"$cache/apt.log" 2>&1 || true    # interrupted before
  update_lists || true
  apt install --reinstall --no-install-recommends -y "${missing[@]}" && return     # some may be there in part
  tail -n 5 "$cache/apt.log" >&2
  die "Debian's packages could not be installed; the whole log is in $cache/apt.log"
}

# A second time it is quick to know what the archive does not have.
add_uneven_packages() {
  local names name lacking=$cache/not-in-archive
  for names in "${uneven[@]}"; do
    for name in $names; do is_installed "$name" && continue 2; done
    grep -qxF "$names" "$lacking" 2>/dev/null && continue
    update_lists || { packages+=("${names%% *}"); continue; }
    for name in $names; do
      if apt-cache policy "$name" | grep 'Candidate: [^(]' >/dev/null; then packages+=("$name"); continue 2; fi
    done
    say "this archive has no ${names// / and no }: tests that need it are skipped"
    printf '%s\n' "$names" >>"$lacking" || true
  done
}

update_lists() {
  [ -z "${updated:-}" ] || return "$updated"
  updated=0
  apt update || { updated=1; say "the package lists could not be renewed; trying with those that are here"; }
  return "$updated"
}

# Another apt may be at work: a machine that has just started renews its packages.
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >>"$cache/apt.log" 2>&1; }

# Mininet is a Debian package in the system's Python, so the environment is made from that and sees it.
make_environment() {
  local recipe
  recipe=$(/usr/bin/python3 -V; declare -f fill_environment; echo "${wanted[@]}"; cat "$checkout"/{requirements,build-constraints}.txt)
  venv=$cache/venv-$(sha256sum <<<"$recipe" | cut -c1-12)
  [ -e "$venv/complete" ] && return
  say "making the Python environment (about a minute)"
  fill_environment || die "the Python environment could not be made, for the reason above"
}

fill_environment() {
  rm -rf "$venv" &&
    /usr/bin/python3 -m venv --system-site-packages "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv &&
    (cd "$checkout" && "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "${wanted[@]}" \
      --build-constraints build-constraints.txt) &&
    touch "$venv/complete"
}

link_environment() {
  [ "$(readlink "$checkout/.venv" 2>/dev/null)" = "$venv" ] || ln -sfn "$venv" "$checkout/.venv" 2>/dev/null ||
    say "$checkout can't be written: use $venv/bin/python"
}

# The headers of the kernel that runs, or, when the archive has them no longer, a newer kernel with its headers.
kernel_packages() {
  local arch headers
  arch=$(dpkg --print-architecture) headers=linux-headers-$(uname -r)
  is_installed "$headers" || update_lists || true
  if is_installed "$headers" || [ -n "$(apt-cache pkgnames "$headers")" ]; then packages+=("$headers")
  else packages+=("linux-image-$arch" "linux-headers-$arch"); fi
}

# DKMS builds the module again for every kernel that comes later.
install_module() {
  local ndm=$checkout/kernel/ndm name version source build
  name=$(sed -n 's/^PACKAGE_NAME="\(.*\)"/\1/p' "$ndm/dkms.conf") version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$ndm/dkms.conf")
  source=/usr/src/$name-$version
  if ! diff -rq --exclude=build "$ndm" "$source" >/dev/null 2>&1; then
    if [ -n "$(dkms status "$name/$version")" ]; then dkms remove "$name/$version" --all >&2; fi
    rm -rf "$source"; mkdir "$source"
    tar -C "$ndm" --exclude=./build -c . | tar -C "$source" -x --no-same-owner
  fi
  if [ -z "$(dkms status "$name/$version")" ]; then dkms add "$name/$version" >&2; fi
  printf '%s\n' tcp_bbr "$name" >/etc/modules-load.d/fairbed.conf
  for build in $(compgen -G '/lib/modules/*/build/Makefile'); do dkms autoinstall -k "$(cut -d/ -f4 <<<"$build")" >&2; done
  if [ -e "/lib/modules/$(uname -r)/build/Makefile" ]; then
    modprobe -a tcp_bbr "$name" || die "NDM-TCP could not be loaded: dmesg | tail"
  else
    say "this kernel's headers are to be had no longer: restart into the newer one (vagrant reload)"
    touch /run/reboot-required
  fi
}

# On every user's path, and on that of sudo. What Python compiles goes to the cache, not into the checkout.
install_python() {
  printf '#!/bin/sh\nexport PYTHONPYCACHEPREFIX=%q\nexec %q "$@"\n' "$cache/compiled" "$venv/bin/python" >"$cache/python.part"
  install -m 755 "$cache/python.part" /usr/local/bin/python
  rm "$cache/python.part"
}

[ "$(uname -s)" = Linux ] || die "Fairbed needs Linux (or a virtual machine with it: vagrant up)"
[[ $cache != *[[:space:]:]* ]] || die "no kernel can be built in '$cache': set FAIRBED_CACHE to a path without blanks and colons"
began=$(date +%s)
mkdir -p "$cache" 2>/dev/null || die "can't write to $cache; set FAIRBED_CACHE to a directory of yours"
if [ "${1:-}" = --vm ]; then
  [ "$(id -u)" = 0 ] || die "--vm changes this machine and needs root: sudo lab/setup.sh --vm"
  kernel_packages
fi
install_packages
if [ -w "$cache" ]; then exec 8>>"$cache/.lock"; flock 8; fi
make_environment
if [ "${1:-}" = --vm ]; then
  install_module
  install_python
  [ -e "$cache/complete" ] || touch "$cache/complete"
  say "ready after $(($(date +%s) - began)) s: sudo python -m experiments.dumbbell"
  exit
fi
link_environment
if [ "$(uname -m)" != x86_64 ]; then
  say "no lab kernel: user-mode Linux needs x86-64, this is $(uname -m); runs go on a real kernel (lab doctor says more)"
elif [ -w "$cache" ]; then
  kernel=$("$checkout/kernel/uml/build.sh" "$cache/kernel") || die "the lab kernel could not be built, for the reason above"
  say "lab kernel: $kernel"
  [ -e "$cache/complete" ] || touch "$cache/complete"
fi
say "ready after $(($(date +%s) - began)) s; environment: source .venv/bin/activate"
