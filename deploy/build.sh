#!/usr/bin/env bash
# Build both images: headroom-job (Spark and our side of a job) and headroom-control (Headroom itself).
#   deploy/build.sh [PREFIX [TAG]]     deploy/build.sh registry.example.internal/ 1.0
# With docker, podman or buildah, whichever is there; pushing them is yours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=${1:-} tag=${2:-latest}

for builder in docker podman buildah; do
  command -v "$builder" > /dev/null && { [ "$builder" != docker ] || docker info > /dev/null 2>&1; } && break
  builder=
done
[ -n "$builder" ] || { echo "needs docker, podman or buildah" >&2; exit 2; }

for image in job control; do
  echo "building ${prefix}headroom-$image:$tag with $builder" >&2
  "$builder" build --file "deploy/$image/Dockerfile" --tag "${prefix}headroom-$image:$tag" .
done
