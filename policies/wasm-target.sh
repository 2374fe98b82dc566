#!/bin/bash
# Makes `cargo build --target wasm32-unknown-unknown` work with the rustc that is on PATH.
#   1. the target is there already                      -> nothing to do
#   2. rustup's own rustc is in use                     -> `rustup target add`, the ordinary way
#   3. Debian's rust-src of exactly this rustc version  -> builds std for the target (about 45 s of CPU)
#      and lays its rlibs where rustup would have laid them.
#   4. otherwise                                        -> exit 3
# Run as root on Debian 12 (needs apt and dpkg-deb; installs no package).
set -euo pipefail
target=${1:-wasm32-unknown-unknown}
sysroot=$(rustc --print sysroot)
version=$(rustc -vV | sed -n 's/^release: //p')
hash=$(rustc -vV | sed -n 's/^commit-hash: //p')
libdir=$sysroot/lib/rustlib/$target/lib
if compgen -G "$libdir/libstd-*.rlib" >/dev/null; then
  echo "wasm-target: $target is installed for rustc $version"
  exit 0
fi
# Only when the rustc in use is rustup's own, so that nothing is added to another toolchain.
if command -v rustup >/dev/null &&
  [ "$(rustup run "${RUSTUP_TOOLCHAIN:-$(rustup show active-toolchain | cut -d' ' -f1)}" rustc --print sysroot 2>/dev/null)" = "$sysroot" ] &&
  timeout 300 rustup target add "$target"; then
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# apt with its own lists, so that the machine's own apt settings stay as they are.
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work/debs"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  grep -oE '(^URIs: *|^deb .*)https?://[^ ]+/debian/? *' | grep -oE 'https?://[^ ]+' | sed -n 1p || true)
for suite in trixie trixie-backports forky sid; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >"$work/apt/sources.list"
cat >"$work/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/apt/lists";
Dir::Cache "$work/apt/cache";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
CONF
touch "$work/apt/status"
echo "Dir::State::status \"$work/apt/status\";" >>"$work/apt/apt.conf"
export APT_CONFIG=$work/apt/apt.conf
apt-get -qq update
deb=$(apt-cache madison rust-src | awk -v v="$version" '$3 ~ "^"v"[+]" {print $3; exit}')
if [ -z "$deb" ]; then
  echo "wasm-target: no rust-src $version among Debian's suites" >&2
  exit 3
fi
(cd "$work/debs" && apt-get -qq download "rust-src=$deb")
unset APT_CONFIG

# A private copy of the toolchain's layout, so that the real one never gets sources
# (rustc would then write their real path into the guests' panic messages).
mkdir -p "$work/src" "$work/empty/src"
dpkg-deb --fsys-tarfile "$work"/debs/rust-src_*.deb |
  tar -x -C "$work/src" --strip-components=4 "./usr/src/rustc-$version/library"
mkdir -p "$work/sysroot"
cp -a --link "$sysroot/." "$work/sysroot/" 2>/dev/null || cp -a "$sysroot/." "$work/sysroot/"
mkdir -p "$work/sysroot/lib/rustlib/src/rust"
mv "$work/src/library" "$work/sysroot/lib/rustlib/src/rust/"
printf '[package]\nname="empty"\nversion="0.0.0"\nedition="2021"\n[workspace]\n' >"$work/empty/Cargo.toml"
echo '#![no_std]' >"$work/empty/src/lib.rs"
(
  cd "$work/empty"
  export PATH="$work/sysroot/bin:$PATH" RUSTC_BOOTSTRAP=1
  unset RUSTUP_TOOLCHAIN CARGO_TARGET_DIR
  export RUSTFLAGS="-Cembed-bitcode=yes --remap-path-prefix=$work/sysroot/lib/rustlib/src/rust=/rustc/$hash --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/rust/deps"
  cargo build -q --release --target "$target" -Zbuild-std=std,panic_abort
)
mkdir -p "$libdir"
rm -f "$work/empty/target/$target/release/deps"/libempty*
cp "$work/empty/target/$target/release/deps"/lib*.rlib "$libdir/"
echo "wasm-target: built $target's std for rustc $version from rust-src $deb"
