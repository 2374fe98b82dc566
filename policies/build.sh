#!/usr/bin/env bash
# Rebuilds the policies that are embedded in the server: policies/prebuilt/*.wasm.
#
#   policies/build.sh           build, wrap, and record a hash over what went in
#   policies/build.sh --check   fail when the recorded hash differs from the sources (needs no Wasm target)
#
# The built-in policy is committed, so that building the server needs no Wasm target. The price is this check.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

target=wasm32-unknown-unknown
prebuilt=policies/prebuilt/default.wasm
record=policies/prebuilt/default.inputs.sha256

# What the component is made of. Documentation and fixtures are not.
inputs() {
  find policies/default policies/sdk -type f \
    \( -name '*.rs' -o -name Cargo.toml -o -name '*.schema.json' \) \
    ! -path '*/target/*' ! -name 'tests.rs' ! -path '*/native/*' ! -name testing.rs
  echo wit/policy.wit
}

# The parts of the root manifest that change a guest: its profile, its dependencies and the version number.
manifest_parts() {
  awk '/^\[/ { wanted = ($0 == "[profile.guest]" || $0 == "[workspace.package]") } wanted && NF' Cargo.toml
  grep -E '^(wit-bindgen|serde_json) = ' Cargo.toml
}

hash_inputs() {
  { inputs | sort | xargs sha256sum; manifest_parts; } | sha256sum | cut -d' ' -f1
}

hash_output() {
  sha256sum < "$prebuilt" | cut -d' ' -f1
}

recorded() {
  printf 'inputs %s\noutput %s\n' "$(hash_inputs)" "$(hash_output)"
}

if [ "${1:-}" = --check ]; then
  if ! diff -u "$record" <(recorded); then
    echo "$prebuilt is not what its sources are: run policies/build.sh and commit what it writes" >&2
    exit 1
  fi
  exit 0
fi

# Paths of this machine must not get into the component, else two machines build different ones.
flags="--remap-path-prefix=$PWD=pointsman"
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
  flags="$flags --remap-path-prefix=$sources=crates"
done
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=$flags
cargo build --locked --profile guest --target "$target" -p pointsman-policy-default

[ -e "$prebuilt" ] || : > "$prebuilt" # the tool that wraps it embeds it
core=${CARGO_TARGET_DIR:-target}/$target/guest/pointsman_policy_default.wasm
cargo run --quiet --locked --profile "${WRAP_PROFILE:-dev}" -p pointsman-policy --example componentize -- "$core" "$prebuilt"
recorded > "$record"
ls -l "$prebuilt"
