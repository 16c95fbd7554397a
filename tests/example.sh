#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs hkt under the build folder, then builds and runs examples/classify against it, as an outside project would.
# usage: example.sh CMAKE BUILD_FOLDER
set -euo pipefail
cmake=$1 build=$2
example=$(dirname "$0")/../examples/classify
folder=$build/tests/example
rm -rf "$folder/prefix"
"$cmake" --install "$build" --prefix "$folder/prefix" >/dev/null
"$cmake" -G Ninja -S "$example" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$folder/prefix"
"$cmake" --build "$folder/build"
"$folder/build/classify"
