#!/usr/bin/env bash
# Builds this policy and prints where it lies.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cargo build --quiet --profile guest --target wasm32-unknown-unknown -p hooks-policy >&2
echo "${CARGO_TARGET_DIR:-$PWD/target}/wasm32-unknown-unknown/guest/hooks_policy.wasm"
