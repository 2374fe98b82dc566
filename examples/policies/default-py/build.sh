#!/usr/bin/env bash
# Builds this policy and prints where it lies: pointsman serve --policy "$(examples/policies/default-py/build.sh)"
# Needs Python 3 with venv (3.11 tried). The toolchain goes into the folder of built files, nowhere else.
set -euo pipefail
cd "$(dirname "$0")"
componentize_py=0.25.1
root=$(cd ../../.. && pwd)
out="${CARGO_TARGET_DIR:-$root/target}/examples/default-py"
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -x "$out/venv/bin/pip" ] || python3 -m venv "$out/venv"
"$out/venv/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$componentize_py" >&2
"$out/venv/bin/componentize-py" -d "$root/wit" -w router componentize --stub-wasi app -o "$out/default-py.wasm" >&2
echo "$out/default-py.wasm"
