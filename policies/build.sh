#!/usr/bin/env bash
# Builds the policies in the box.
#
#   policies/build.sh            rebuild the one that is embedded in the server, policies/prebuilt/*.wasm: build, wrap, and
#                                record a hash over what went in
#   policies/build.sh --check    fail when the recorded hash differs from the sources (needs no Wasm target)
#   policies/build.sh --all DIR  build all of them and put them into DIR, as NAME.wasm, for a server to load
#
# The built-in policy is committed, so that building the server needs no Wasm target. The price is this check.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

target=wasm32-unknown-unknown
prebuilt=policies/prebuilt/default.wasm
record=policies/prebuilt/default.inputs.sha256
small=(command-platform property-rules exclusive size-classes affinity tenant-fair)

# What the component is made of. Documentation and fixtures are not, nor is what only tests have.
inputs() {
  find policies/default policies/parts policies/sdk -type f \
    \( -name '*.rs' -o -name Cargo.toml -o -name '*.schema.json' \) \
    ! -path '*/target/*' ! -name 'tests.rs' ! -path '*/native/*' ! -name testing.rs ! -path '*/testing/*'
  find "${small[@]/#/policies/}" -name config.schema.json
  echo wit/policy.wit
}

# The parts of the root manifest that change a guest: its profile, its dependencies and the version number.
manifest_parts() {
  awk '/^\[/ { wanted = ($0 == "[profile.guest]" || $0 == "[workspace.package]") } wanted && NF' Cargo.toml
  grep -E '^(wit-bindgen|serde_json|regex-lite|fnv) = ' Cargo.toml
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

# Builds policies by name. What cargo writes has the interface embedded, and a server loads it as it is.
build() {
  # Paths of this machine must not get into the component, else two machines build different ones.
  local flags="--remap-path-prefix=$PWD=pointsman" sources
  for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags="$flags --remap-path-prefix=$sources=crates"
  done
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=$flags
  # shellcheck disable=SC2068 # one -p for each
  cargo build --locked --profile guest --target "$target" ${@/#/-p pointsman-policy-}
}

core() {
  echo "${CARGO_TARGET_DIR:-target}/$target/guest/pointsman_policy_${1//-/_}.wasm"
}

case "${1:-}" in
--check)
  if ! diff -u "$record" <(recorded); then
    echo "$prebuilt is not what its sources are: run policies/build.sh and commit what it writes" >&2
    exit 1
  fi
  ;;
--all)
  into=${2:?"policies/build.sh --all needs the folder that the policies are to be put into"}
  build default "${small[@]}"
  mkdir -p "$into"
  for name in default "${small[@]}"; do
    # A server that watches the file must never see half of it.
    cp "$(core $name)" "$into/.$name.wasm.new"
    mv "$into/.$name.wasm.new" "$into/$name.wasm"
  done
  ;;
"")
  build default
  [ -e "$prebuilt" ] || : > "$prebuilt" # the tool that wraps it embeds it
  cargo run --quiet --locked --profile "${WRAP_PROFILE:-dev}" -p pointsman-policy --example componentize -- "$(core default)" "$prebuilt"
  recorded > "$record"
  ls -l "$prebuilt"
  ;;
*)
  echo "policies/build.sh: unknown argument '$1'; known are --check and --all DIR" >&2
  exit 64
  ;;
esac
