#!/usr/bin/env bash
# Builds this policy and prints where it lies: pointsman serve --policy "$(examples/policies/default-js/build.sh)"
# Needs Node.js with npm. The toolchain goes into the folder of built files, nowhere else.
set -euo pipefail
cd "$(dirname "$0")"
jco=1.35.0
root=$(cd ../../.. && pwd)
out="${CARGO_TARGET_DIR:-$root/target}/examples/default-js"
mkdir -p "$out"
out=$(cd "$out" && pwd)
if ! grep -qs "\"version\": \"$jco\"" "$out/node_modules/@bytecodealliance/jco/package.json"; then
  npm install --prefix "$out" --no-audit --no-fund --loglevel=error --save-exact "@bytecodealliance/jco@$jco" >&2
fi
"$out/node_modules/.bin/jco" componentize policy.js --wit "$root/wit" -n router --backend quickjs \
  --backend-qjs-disable-async --backend-qjs-stub-wasi -o "$out/default-js.wasm" >&2
echo "$out/default-js.wasm"
