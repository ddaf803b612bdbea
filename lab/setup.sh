#!/usr/bin/env bash
# Makes everything that Fairbed needs on this machine: packages, the Python environment, the lab kernel.
#
#   lab/setup.sh            do what is not done yet (a few seconds when all is)
#   lab/setup.sh --tests    and what only tests need: a browser, clang, kernel headers
#   lab/setup.sh --where    print the cache directory
#
# Everything but Debian's packages goes to the cache: FAIRBED_CACHE, or for root /var/cache/fairbed (readable for
# every user of the machine), or for others ~/.cache/fairbed unless /var/cache/fairbed is set up. Each step is
# skipped when it is done and taken up where it was interrupted. Only packages need root.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
system=/var/cache/fairbed
packages=(mininet openvswitch-switch iperf3 iproute2 iputils-ping kmod python3-venv
          gcc libc6-dev make flex bison bc libelf-dev libssl-dev xz-utils)

if [ "${1:-}" = --tests ]; then
  packages+=(chromium ethtool dkms pahole clang llvm bpftool libbpf-dev "linux-headers-$(dpkg --print-architecture 2>/dev/null)")
fi

cache=${FAIRBED_CACHE:-}
if [ -z "$cache" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/fairbed
  if [ "$(id -u)" = 0 ] || { [ -e "$system/complete" ] && [ ! -e "$cache/complete" ]; }; then cache=$system; fi
fi
[ "${1:-}" = --where ] && { printf '%s\n' "$cache"; exit; }

say() { printf 'fairbed setup: %s\n' "$*" >&2; }
die() { printf 'fairbed setup: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"
  else die "these packages need root, and there is no sudo here. As root: $*"; fi
}

install_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null || { say "not Debian: install what corresponds to: ${packages[*]}"; return; }
  for name in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing Debian packages (about a minute): ${missing[*]}"
  apt update && apt install --no-install-recommends -y "${missing[@]}" && return
  tail -n 5 "$cache/apt.log" >&2
  die "Debian's packages could not be installed; the whole log is in $cache/apt.log"
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >>"$cache/apt.log" 2>&1; }

# Mininet is a Debian package in the system's Python, so the environment is made from that and sees it.
make_environment() {
  local key venv
  key=$(/usr/bin/python3 -V | cat - "$checkout/requirements.txt" "$checkout/lab/setup.sh" | sha256sum | cut -c1-12)
  venv=$cache/venv-$key
  if [ ! -e "$venv/complete" ]; then
    say "making the Python environment (about a minute)"
    rm -rf "$venv"
    /usr/bin/python3 -m venv --system-site-packages "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv
    # Ryu 4.34 builds with no newer setuptools.
    "$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" -r "$checkout/requirements.txt" \
      --build-constraints <(echo setuptools==67.8.0)
    touch "$venv/complete"
  fi
  [ "$(readlink "$checkout/.venv" 2>/dev/null)" = "$venv" ] || ln -sfn "$venv" "$checkout/.venv" 2>/dev/null ||
    say "$checkout can't be written: use $venv/bin/python"
}

[ "$(uname -s)" = Linux ] || die "Fairbed needs Linux (or a virtual machine with it: vagrant up)"
began=$(date +%s)
mkdir -p "$cache" || die "can't write to $cache; set FAIRBED_CACHE to a directory of yours"
install_packages
if [ -w "$cache" ]; then
  exec 8>"$cache/.lock"; flock 8
  make_environment
  say "lab kernel: $("$checkout/kernel/uml/build.sh" "$cache/kernel")"
  touch "$cache/complete"
else
  make_environment
fi
say "ready after $(($(date +%s) - began)) s; environment: source .venv/bin/activate"
