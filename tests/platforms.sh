#!/usr/bin/env bash
# From a bare root of another release to the main job: set-up, the fast tests, the main job in the lab kernel.
#
#   tests/platforms.sh [trixie|bookworm|noble|DIRECTORY-OF-A-ROOT]...      15 minutes each, most of it the lab kernel
#
# TARGET=test makes all tests run, not only the fast ones.
# The roots are made by mmdebstrap and entered in namespaces of their own; they go at the end. Ubuntu's keys are not in
# Debian: where ubuntu-keyring is not installed, that root's packages are taken unchecked.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "fairbed: needs root, to make a root: sudo $0" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "fairbed: mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

make_root() {
  local options=(--quiet --variant=apt --include=make,git,ca-certificates,iproute2,mount)
  if [ "$1" = noble ]; then
    options+=(--components=main,universe)
    [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] ||
      options+=(--aptopt='Acquire::AllowInsecureRepositories "true"' --aptopt='APT::Get::AllowUnauthenticated "true"')
  fi
  mmdebstrap "${options[@]}" "$1" "$2"
  cp /etc/ssl/certs/ca-certificates.crt "$2/etc/ssl/certs/"     # a mirror may lie behind a proxy
}

copy_checkout() {
  mkdir -p "$1"
  git -C "$checkout" ls-files -z --cached --others --exclude-standard |
    tar -C "$checkout" --null --ignore-failed-read -T - -c | tar -C "$1" -x --no-same-owner
}

# In its namespaces: ROOT becomes the root.
enter() {
  mount --bind "$1" "$1"
  mount --rbind /dev "$1/dev"
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount -t tmpfs run "$1/run"
  cd "$1"
  pivot_root . .
  umount -l .
  local certificates=/etc/ssl/certs/ca-certificates.crt
  exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE=$certificates PIP_CERT=$certificates \
    TARGET="${TARGET:-unit}" LINUX_SOURCE="${LINUX_SOURCE:+/$(basename "$LINUX_SOURCE")}" bash -euc "$2"
}

inside='
cd "/srv/ein Prüfstand"
lab/setup.sh
lab/setup.sh
.venv/bin/python -V
.venv/bin/python -m experiments.dumbbell --kernel lab
make $TARGET
'

if [ "${1:-}" = --enter ]; then enter "$2" "$inside"; fi
work=$(mktemp -d /var/tmp/fairbed-platforms.XXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
for release in "${@:-trixie}"; do
  root=$work/$release
  if [ -d "$release" ]; then root=$release; else make_root "$release" "$root"; fi
  copy_checkout "$root/srv/ein Prüfstand"
  if [ -n "${LINUX_SOURCE:-}" ]; then cp "$LINUX_SOURCE" "$root/"; fi
  unshare --mount --pid --fork --kill-child --propagation private "$0" --enter "$root"
  echo "$release: passed"
done
