#!/bin/sh
# Build the files of a release in dist/. `make release` calls it, after it has set UV and built the site.
set -eu
[ -z "$(git status --porcelain)" ] || { echo "release: the checkout has changes that are not committed; nothing was built." >&2; exit 64; }
git describe --exact-match --tags --match 'v*' > /dev/null 2>&1 || { echo "release: this commit has no tag v…, and a release has its version from its tag;" \
    "nothing was built. Tag it first (git tag v0.2.0)." >&2; exit 64; }
rm -rf dist && mkdir dist
.venv/bin/python -c 'from hatchling.build import build_sdist, build_wheel; build_wheel("dist"); build_sdist("dist")'
version=$(basename dist/*.whl | cut -d - -f 2)
tar -czf "dist/onlyonce-site-$version.tar.gz" -C site .
# The packages that the image installs, with the hashes of the lock, as CycloneDX.
"$UV" tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --output-reproducible \
    --output-file "dist/onlyonce-$version.sbom.json" docker/requirements.lock
if docker info > /dev/null 2>&1; then
    docker build --quiet --build-arg VERSION="$version" --tag "onlyonce:$version" --file docker/Dockerfile .
    docker save "onlyonce:$version" | gzip > "dist/onlyonce-image-$version.tar.gz"
else
    echo "release: no container engine answers, so dist/ has no image." >&2
fi
(cd dist && sha256sum onlyonce* > SHA256SUMS)
ls -l dist
