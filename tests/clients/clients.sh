#!/bin/bash
# Real REv2 clients for the end-to-end tests. Run as root on Debian; idempotent.
#
#   clients.sh setup [CLIENT...]           install them (default: all); a few minutes and 2.8 GB the first time
#   clients.sh has CLIENT                  end with 0 when it is installed, with 3 when this machine can't have it
#   clients.sh root                        print the folder they live in, for `chroot`
#   clients.sh workspace NAME              copy the sample workspace NAME afresh to /w/NAME in there
#   clients.sh in COMMAND...               run a command in there, with a clean environment
#   clients.sh bazel7|bazel2|pants NAME ARGUMENTS...   run it in workspace NAME
#   clients.sh prometheus ARGUMENTS...    run Prometheus, which needs no root: it is what reads /metrics
#   clients.sh down                        stop the Bazel servers and unmount
#
# CLIENT is bazel7 (7.7.1), bazel2 (2.1.0, by npm), buildbox (recc and trexe), pants (2.17.1, by pip, for which a
# Python 3.9 must be there) or prometheus (of Debian's package). Bazel 7 and buildbox are packages of Debian "forky" and need its libraries, so all live in
# a root of their own. A worker for them must run in that root too: Bazel names the compiler by its path.
# $CLIENTS (default: "clients" in the folder for temporary files) holds everything.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=${CLIENTS:-${TMPDIR:-/tmp}/clients}
root=$base/forky
all=(bazel7 bazel2 buildbox pants prometheus)
clean_env=(env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root USER=root LANG=C.UTF-8)

usage() {
  sed -n '4,11p' "$0" | cut -c3-
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

# A Bazel of the time when REv2 was new, with a Java of its own; the compiler comes from the root.
install_bazel2() {
  local mark=$root/.have-bazel2 package=bazel-bazel-linux_x64-2.1.0.tgz
  [ ! -e "$mark" ] || return 0
  command -v npm >/dev/null || {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends npm >/dev/null
  }
  (cd "$base" && npm pack --silent @bazel/bazel-linux_x64@2.1.0 >/dev/null)
  tar -xzf "$base/$package" -O package/bazel-2.1.0-linux-x86_64 >"$root/usr/local/bin/bazel2"
  rm "$base/$package"
  chmod 755 "$root/usr/local/bin/bazel2"
  touch "$mark"
}

python39() {
  local own
  own=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.9*/bin/python3 2>/dev/null | tail -1)
  [ -n "$own" ] || own=$(command -v python3.9) || return 1
  "$own" -c 'import venv' 2>/dev/null && echo "$own"
}

# Outside of the root, where the Python is.
install_pants() {
  local mark=$base/pants/.ready python
  [ ! -e "$mark" ] || return 0
  python=$(python39) || return 3
  "$python" -m venv "$base/pants"
  nice "$base/pants/bin/pip" install -q pantsbuild.pants==2.17.1
  touch "$mark"
}

# Unpacked and not installed: nothing is to run as a service.
install_prometheus() {
  local mark=$base/prometheus/.ready
  [ ! -e "$mark" ] || return 0
  rm -rf "$base/prometheus"
  mkdir -p "$base/prometheus"
  apt-get update -qq
  (cd "$base/prometheus" && apt-get download -qq prometheus >/dev/null && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb)
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
      bazel2)
        make_root
        install_packages compiler gcc g++
        install_bazel2
        ;;
      buildbox)
        make_root
        install_packages buildbox buildbox
        install_packages compiler gcc g++
        ;;
      pants)
        make_root
        if ! python39 >/dev/null; then
          echo "pants is left out: there is no Python 3.9"
          continue
        fi
        install_pants
        ;;
      prometheus) install_prometheus ;;
      *)
        echo "unknown client: $client; known are ${all[*]}" >&2
        exit 64
        ;;
    esac
    echo "$client is ready after $((SECONDS - start)) s"
  done
}

has() {
  case $1 in
    pants)
      [ -e "$base/pants/.ready" ] || { python39 >/dev/null && return 1 || return 3; }
      ;;
    prometheus) [ -e "$base/prometheus/.ready" ] ;;
    *) [ -e "$root/.have-$1" ] ;;
  esac
}

workspace() {
  local target=$root/w/$1
  mkdir -p "$target"
  find "$target" -mindepth 1 -delete
  # The same targets for either Bazel.
  [ "$1" != ws2 ] || cp -r "$here/ws7/." "$target/"
  cp -r "$here/$1/." "$target/"
  # Large enough for many messages of an upload, and nothing that compresses; too large for a repository.
  head -c 5500000 /dev/urandom >"$target/big_in.bin"
}

# Either Bazel in a workspace, with an output root and so a server of its own.
enter_bazel() {
  local bazel=$1 name=$2
  shift 2
  mount_proc
  set -- "--output_user_root=/w/out${bazel#bazel}" "$@"
  # /etc/bazel.bazelrc is for Debian's.
  [ "$bazel" = bazel ] || set -- --nosystem_rc "$@"
  exec chroot "$root" "${clean_env[@]}" sh -c 'cd "/w/$1" && shift && exec "$@"' sh "$name" "$bazel" "$@"
}

enter_pants() {
  local name=$1
  shift
  cd "$root/w/$name"
  exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$base/pants/home" LANG=C.UTF-8 "$base/pants/bin/pants" "$@"
}

down() {
  mountpoint -q "$root/proc" || return 0
  local folder bazel
  for folder in "$root"/w/*/; do
    for bazel in bazel bazel2; do
      [ -e "$folder/WORKSPACE" ] && [ -e "$root/w/out${bazel#bazel}" ] || continue
      (enter_bazel "$bazel" "$(basename "$folder")" shutdown) 2>/dev/null || true
    done
  done
  umount "$root/proc"
}

[ $# -gt 0 ] || usage
command=$1
shift
case $command in
  setup) if [ $# -eq 0 ]; then setup "${all[@]}"; else setup "$@"; fi ;;
  has) has "${1:?which client}" ;;
  root) echo "$root" ;;
  workspace) workspace "${1:?which workspace}" ;;
  in)
    mount_proc
    exec chroot "$root" "${clean_env[@]}" "$@"
    ;;
  bazel7) enter_bazel bazel "${1:?which workspace}" "${@:2}" ;;
  bazel2) enter_bazel bazel2 "${1:?which workspace}" "${@:2}" ;;
  pants) enter_pants "${1:?which workspace}" "${@:2}" ;;
  prometheus) exec "$base/prometheus/usr/bin/prometheus" "$@" ;;
  down) down ;;
  *) usage ;;
esac
