#!/usr/bin/env bash
# Builds the lab kernel (user-mode Linux) and everything compiled that runs with it.
#
#   kernel/uml/build.sh CACHE        prints the directory of the finished kernel on its last line
#
# CACHE/source/        the kernel's source, fetched once
# CACHE/kernel-KEY/    src/ and build/ (modules are built against them), linux
# CACHE/lab-KEY-KEY/   one finished lab: linux, init, seeded_random.so, patient_select.so, ndm_tcp.ko, checksums
#
# The keys cover the configuration and our own sources, so a changed input makes a new lab and an unchanged
# one costs a fraction of a second. LINUX_SOURCE=FILE.tar.xz replaces the download (where there is no
# apt). FAIRBED_KERNEL_CONFIG="config config.debug" adds the memory and undefined-behaviour sanitizers: a lab of
# its own beside the usual one. Nothing here needs root.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=$(realpath -ms "${1:?usage: build.sh CACHE}")
read -ra configs <<<"${FAIRBED_KERNEL_CONFIG:-config}"     # files here, merged in this order
configs=("${configs[@]/#/$here/}")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
minimum=6.16   # the first release with seccomp=on in user-mode Linux, which is faster than ptrace

say() { printf '  %s\n' "$*" >&2; }
die() { printf 'fairbed: %s\n' "$*" >&2; exit 1; }

# The machine's own Debian mirror, or where it has none (Ubuntu) Debian's, asked for the suites where new kernels
# appear first, without touching the machine's apt configuration or its package lists. A mirror may lag: signed by
# Debian is enough, the day does not matter.
mirror() {
  grep -rhoE '(URIs: *|^deb (\[[^]]*\] )?)[a-z+]+://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
    grep -oE '[a-z+]+://[^ ]+' | head -n 1
}

fetch_source() {
  local apt=$cache/source/apt uri suite name
  uri=$(mirror || true); uri=${uri:-http://deb.debian.org/debian}
  [ -r "$keyring" ] || die "Debian's keys are missing: apt-get install debian-archive-keyring, or set LINUX_SOURCE=/path/to/linux-$minimum-or-newer.tar.xz"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  for suite in stable-backports testing unstable; do
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$apt/sources.list"
    local options=(-qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
                   -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt" -o APT::Sandbox::User=
                   -o Acquire::Languages=none -o Debug::NoLocking=1 -o Acquire::Check-Valid-Until=false)
    apt-get "${options[@]}" update >&2 || continue
    name=$(apt-cache "${options[@]/-qq/-q}" pkgnames linux-source- | grep -E '^linux-source-[0-9.]+$' | sort -V | tail -n 1)
    if [ -n "$name" ] && [ "$(printf '%s\n' "$minimum" "${name#linux-source-}" | sort -V | head -n 1)" = "$minimum" ]; then
      say "downloading $name from $suite (about 150 MB)"
      (cd "$apt" && apt-get "${options[@]}" download "$name" >&2)
      dpkg-deb --fsys-tarfile "$apt/$name"_*.deb | tar -xO --wildcards '*.tar.xz' >"$cache/source/part"
      mv "$cache/source/part" "$cache/source/$name.tar.xz"
      rm -rf "$apt"
      return
    fi
  done
  die "no linux-source >= $minimum in stable-backports, testing or unstable; set LINUX_SOURCE=/path/to/linux.tar.xz"
}

source_tarball() {
  if [ -n "${LINUX_SOURCE:-}" ]; then
    [ -r "$LINUX_SOURCE" ] || die "LINUX_SOURCE=$LINUX_SOURCE can't be read"
    printf '%s\n' "$LINUX_SOURCE"; return
  fi
  mkdir -p "$cache/source"
  exec 8>"$cache/source/.lock"; flock 8
  compgen -G "$cache/source/linux-source-*.tar.xz" >/dev/null || fetch_source
  printf '%s\n' "$cache"/source/linux-source-*.tar.xz | sort -V | tail -n 1
}

# What user-mode Linux never compiles, and the build system does not look for, stays in the archive.
unpack() {
  say "unpacking $(basename "$1") (about 30 s)"
  rm -rf "$2.part"; mkdir -p "$2.part"
  tar -C "$2.part" --strip-components=1 -xJf "$1" \
    --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' --exclude='*/sound/*.[ch]' \
    --exclude='*/drivers/net/ethernet/*.[ch]' --exclude='*/drivers/net/wireless/*.[ch]' --exclude='*.dts' --exclude='*.dtsi' \
    --exclude='*/Documentation/*.rst' --exclude='*/tools/testing/*'
  mv "$2.part" "$2"
}

# $1: file, $2: what must be in it afterwards, $3: sed's command, which must do no harm a second time.
edit() {
  grep -q "$2" "$1" || sed -i "$3" "$1"
  grep -q "$2" "$1" || die "$1 is not what it was in older kernels: the edit '$3' found nothing"
}

# - The tick: 100 a second in user-mode Linux, 250 in Debian's kernels. TCP's timers round to ticks.
# - The random generator must be the seed's alone, or no run repeats: it stirs in the time at which things happen, which
#   depends on how deep the host's directories are, and the instruction that an interrupt met, which depends on
#   when the host delivers a signal.
adapt() {
  edit "$1/arch/um/Kconfig" 'default 250$' '/^config HZ$/,/default/s/default 100$/default 250/'
  edit "$1/arch/um/include/asm/timex.h" 'random_get_entropy() 1UL' '/include <asm-generic.timex.h>/a #define random_get_entropy() 1UL'
  edit "$1/drivers/char/random.c" 'add_interrupt_randomness.*return;' '/^void add_interrupt_randomness(int irq)$/,/^{$/s/^{$/{ \/* add_interrupt_randomness *\/ return;/'
}

configure() {
  adapt "$1"
  make -s -C "$1" O="$2" ARCH=um tinyconfig >&2
  cp "${configs[@]}" "$2"     # the merging script takes no path with blanks
  (cd "$2" && "$1/scripts/kconfig/merge_config.sh" -m -O . .config "${configs[@]##*/}" >/dev/null)
  make -s -C "$1" O="$2" ARCH=um olddefconfig >&2
  local wanted lost=
  while read -r wanted; do grep -qxF "$wanted" "$2/.config" || lost+=" $wanted"; done < <(grep -hE '^CONFIG_' "${configs[@]}"; echo CONFIG_HZ=250)
  [ -z "$lost" ] || die "this kernel source does not keep these options:$lost"
}

# $1: the kernel's directory. The long part, resumed by make where it was interrupted.
build_kernel() {
  say "building the lab kernel: about 5 minutes on two cores, once"
  mkdir -p "$1/build"
  local archive
  [ -d "$1/src" ] || { archive=$(source_tarball) || exit 1; unpack "$archive" "$1/src"; }
  [ -e "$1/configured" ] || { configure "$1/src" "$1/build"; touch "$1/configured"; }
  # The version string is stirred into the random generator: the same on every machine, or results would differ.
  export KBUILD_BUILD_TIMESTAMP='1970-01-01' KBUILD_BUILD_USER=fairbed KBUILD_BUILD_HOST=fairbed KBUILD_BUILD_VERSION=1
  make -s -C "$1/src" O="$1/build" ARCH=um -j"$(nproc)" linux modules >"$1/build.log" 2>&1 ||
    { tail -n 20 "$1/build.log" >&2; die "the lab kernel did not build; the whole log is in $1/build.log"; }
  strip -o "$1/linux.part" "$1/build/linux"
  mv "$1/linux.part" "$1/linux"
  (cd "$1" && sha256sum linux >checksums)
}

# $1: the kernel's directory, $2: where the finished lab goes.
build_lab() {
  rm -rf "$2.part"; mkdir -p "$2.part"
  cp "$1/linux" "$2.part/linux"
  cc -O2 -Wall -Wextra -static -o "$2.part/init" "$here/init.c"
  local name
  for name in seeded_random patient_select; do cc -O2 -Wall -Wextra -shared -fPIC -o "$2.part/$name.so" "$here/$name.c"; done
  make -s -C "$here/../ndm" lab SRC="$1/src" KBUILD_OUTPUT_DIR="$1/build" BUILD="$2.part/ndm" >"$2.part/ndm.log" 2>&1 ||
    { tail -n 20 "$2.part/ndm.log" >&2; die "the NDM-TCP module did not build for the lab kernel"; }
  mv "$2.part/ndm/ndm_tcp.ko" "$2.part/"; rm -rf "$2.part/ndm"
  ln -s "$1" "$2.part/kernel"
  (cd "$2.part" && sha256sum linux init seeded_random.so patient_select.so ndm_tcp.ko >checksums)
  rm -rf "$2"; mv "$2.part" "$2"
}

intact() { [ -e "$1/checksums" ] && (cd "$1" && sha256sum --quiet --status -c checksums); }
key() { cat "$@" | sha256sum | cut -c1-12; }

[ "$(uname -m)" = x86_64 ] || die "the lab kernel needs x86-64, as user-mode Linux does, and this is $(uname -m): use --kernel host"

# An existing kernel needs no source archive, so its key can't be the archive's: the newest kernel made from
# this configuration counts. LINUX_SOURCE names its kernel by the archive's name.
recipe=4   # raised when configure() or build_kernel() come to make something else
flavour=$(key "${configs[@]}" <(echo "$recipe"))
if [ -n "${LINUX_SOURCE:-}" ]; then flavour+=-$(basename "$LINUX_SOURCE" .tar.xz); fi
kernel=$cache/kernel-$flavour
lab=$cache/lab-$flavour-$(key "$here"/*.c "$here/build.sh" "$here"/../ndm/*.[ch] "$here"/../ndm/Makefile "$here"/../ndm/Kbuild)
if ! intact "$lab"; then     # only then is the cache written to: it may be another user's
  mkdir -p "$cache"
  exec 9>"$kernel.lock"; flock 9     # two set-ups at once: the second waits, then finds the work done
fi
if ! intact "$lab"; then
  [ ! -e "$lab" ] || say "the cached lab kernel is damaged; making it again"
  intact "$kernel" || { rm -f "$kernel/build/linux"; build_kernel "$kernel"; }
  build_lab "$kernel" "$lab"
  find "$cache" -maxdepth 1 -name "lab-$flavour-*" ! -path "$lab" -mtime +7 -exec rm -rf {} +
fi
printf '%s\n' "$lab"
