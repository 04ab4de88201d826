#!/bin/sh
# Builds the Dockerfile's target cpu for image-run.test.ts, without an engine or a registry of images: over a stand-in
# for its base, which is Debian by debootstrap and Node 24 from npm. As root, with buildah and debootstrap (apt).
#   sh test/deploy/build-image.sh [FOLDER]
set -eu
project=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/infer-batch-tests/image}
rm -rf "$out"
mkdir -p "$out/node"
out=$(cd "$out" && pwd)

debootstrap --variant=minbase --include=ca-certificates bookworm "$out/base"
npm install --prefix "$out/node" --ignore-scripts --no-audit --no-fund "node-linux-$(node -p process.arch)@24" npm@11
cp "$out"/node/node_modules/node-linux-*/bin/node "$out/base/usr/local/bin/node"
mkdir -p "$out/base/usr/local/lib/node_modules"
cp -R "$out/node/node_modules/npm" "$out/base/usr/local/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$out/base/usr/local/bin/npm"
certificates=/etc/ssl/certs/ca-certificates.crt # a registry's mirror may have one of its own
cp $certificates "$out/base$certificates"

image() {
  buildah --root "$out/storage" --runroot "$out/running" --storage-driver vfs "$@"
}
base=$(image from scratch)
image copy --quiet "$base" "$out/base" /
image config --env NODE_EXTRA_CA_CERTS=$certificates \
  --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$base"
image commit --quiet "$base" localhost/node:stand-in
image bud --isolation chroot --pull-never --build-arg NODE=localhost/node:stand-in --tag infer-batch:test "$project"
made=$(image from --pull-never localhost/infer-batch:test)
cp -a "$(image mount "$made")" "$out/root"
image inspect --type image localhost/infer-batch:test > "$out/image.json"
chmod -R u+w "$out/storage" && rm -rf "$out/storage" "$out/running" "$out/base" "$out/node"
touch "$out/complete"
du -sh "$out/root/app"
