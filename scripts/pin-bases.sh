#!/bin/sh
# Pins the base images of the Dockerfile by digest, as their registries have them now: before a release, and again for
# the bases' security updates. Needs Docker with buildx, and the network.
#   sh scripts/pin-bases.sh [DOCKERFILE]
set -eu
dockerfile=${1:-$(dirname "$0")/../Dockerfile}
for name in NODE CUDA; do
  image=$(sed -n "s/^ARG $name=\\([^@]*\\).*/\\1/p" "$dockerfile")
  # The digest of the list of platforms, not of one platform's image: the image is built for amd64 and arm64.
  digest=$(docker buildx imagetools inspect "$image" | sed -n 's/^Digest: *//p')
  case $digest in
    sha256:*) ;;
    *)
      echo "error: $image: expected a digest, got: $digest" >&2
      exit 1
      ;;
  esac
  pinned=$(sed "s|^ARG $name=.*|ARG $name=$image@$digest|" "$dockerfile")
  printf '%s\n' "$pinned" > "$dockerfile"
  echo "$image@$digest"
done
