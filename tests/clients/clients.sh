#!/bin/bash
# Real REv2 clients for the end-to-end tests. Run as root on Debian; idempotent.
#
#   clients.sh setup [bazel7] [buildbox]   install them (default: both); a few minutes and 2.3 GB the first time
#   clients.sh has bazel7|buildbox         end with 0 when it is installed
#   clients.sh root                        print the folder they live in, for `chroot`
#   clients.sh workspace NAME              copy the sample workspace NAME afresh to /w/NAME in there
#   clients.sh in COMMAND...               run a command in there, with a clean environment
#   clients.sh bazel7 NAME ARGUMENTS...    run Bazel 7 in workspace NAME
#   clients.sh down                        stop the Bazel servers and unmount
#
# Bazel 7 and buildbox are packages of Debian "forky" and need its libraries, so they live in a root of their own. A
# worker for them must run in that root too: Bazel names the compiler by its path.
# $CLIENTS (default: "clients" in the folder for temporary files) holds everything.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=${CLIENTS:-${TMPDIR:-/tmp}/clients}
root=$base/forky
clean_env=(env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root USER=root LANG=C.UTF-8)

usage() {
  sed -n '4,10p' "$0" | cut -c3-
  exit 64
}

# /proc is all that is mounted. A mount namespace per call would spare the unmounting, but then Bazel can't see its
# server and starts a new one each time.
mount_proc() {
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
}

enter() {
  mount_proc
  chroot "$root" "${clean_env[@]}" "$@"
}

make_root() {
  [ ! -e "$root/.ready" ] || return 0
  command -v debootstrap >/dev/null || {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
  }
  local mirror
  mirror=$(sed -n 's/^URIs: *//p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -m1 '/debian/*$')
  # Debian 12's debootstrap has no script called forky; sid's does the same.
  [ -e "$root/.strapped" ] || {
    nice debootstrap --variant=minbase forky "$root" "$mirror" /usr/share/debootstrap/scripts/sid \
      >"$base/debootstrap.log" 2>&1 || { tail -20 "$base/debootstrap.log" >&2; return 1; }
    touch "$root/.strapped"
  }
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing in there starts a service
  chmod +x "$root/usr/sbin/policy-rc.d"
  # A suite that is not released yet is at times served with a Release file past its date.
  echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90date"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fast"
  printf 'path-exclude=/usr/share/%s/*\n' man locale doc info >>"$root/etc/dpkg/dpkg.cfg.d/fast"
  enter apt-get update -qq
  touch "$root/.ready"
}

install_packages() {
  local mark=$root/.have-$1
  shift
  [ ! -e "$mark" ] || return 0
  mount_proc
  nice chroot "$root" "${clean_env[@]}" DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@" >>"$base/apt.log" 2>&1 </dev/null ||
    { tail -20 "$base/apt.log" >&2; return 1; }
  touch "$mark"
}

setup() {
  local client start
  mkdir -p "$base"
  for client in "$@"; do
    start=$SECONDS
    case $client in
      bazel7)
        make_root
        install_packages bazel7 bazel-bootstrap bazel-rules-shell bazel-rules-cc bazel-rules-python bazel-skylib \
          bazel-java-tools
        # Debian's Bazel looks for it here; without it --remote_cache_compression fails.
        ln -sf /usr/lib/x86_64-linux-gnu/libzstd-jni.so "$root/usr/share/bazel/libzstd-jni.so"
        ;;
      buildbox)
        make_root
        install_packages buildbox buildbox
        ;;
      *)
        echo "unknown client: $client; known are bazel7 and buildbox" >&2
        exit 64
        ;;
    esac
    echo "$client is ready after $((SECONDS - start)) s"
  done
}

workspace() {
  local target=$root/w/$1
  mkdir -p "$target"
  find "$target" -mindepth 1 -delete
  cp -r "$here/$1/." "$target/"
  # Large enough for many messages of an upload, and nothing that compresses; too large for a repository.
  head -c 5500000 /dev/urandom >"$target/big_in.bin"
}

down() {
  mountpoint -q "$root/proc" || return 0
  local folder
  for folder in "$root"/w/*/; do
    [ -e "$folder/WORKSPACE" ] || continue
    chroot "$root" "${clean_env[@]}" sh -c 'cd "$1" && exec bazel --output_user_root=/w/out shutdown' sh \
      "/w/$(basename "$folder")" 2>/dev/null || true
  done
  umount "$root/proc"
}

[ $# -gt 0 ] || usage
command=$1
shift
case $command in
  setup) if [ $# -eq 0 ]; then setup bazel7 buildbox; else setup "$@"; fi ;;
  has) [ -e "$root/.have-${1:?which client}" ] ;;
  root) echo "$root" ;;
  workspace) workspace "${1:?which workspace}" ;;
  in)
    mount_proc
    exec chroot "$root" "${clean_env[@]}" "$@"
    ;;
  bazel7)
    mount_proc
    name=${1:?which workspace}
    shift
    exec chroot "$root" "${clean_env[@]}" sh -c 'cd "/w/$1" && shift && exec bazel --output_user_root=/w/out "$@"' \
      sh "$name" "$@"
    ;;
  down) down ;;
  *) usage ;;
esac
