# syntax=docker/dockerfile:1

# Two images:
#
#   docker build --target full --tag linkspan .                  with npx and uvx, for servers that are started as programs
#   docker build --target remote --tag linkspan:remote .         without a shell, for servers with a URL only
#
# Base images are named by tag, so that this file can be read and renovated. For a build that can be repeated, put the digest of the
# day behind each:
#   docker buildx imagetools inspect node:24-trixie-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg NODE_IMAGE=node:24-trixie-slim@sha256:… .
ARG NODE_IMAGE=node:24-trixie-slim
ARG UV_IMAGE=ghcr.io/astral-sh/uv:0.13.9

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY scripts/node-pin/package.json scripts/node-pin/
# With the optional ones: the bundler's own binary is one of them. Scripts of packages do not run: the build needs none of them.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json ./
COPY scripts/build.ts scripts/
COPY src src
# The commit that linkspan_build_info shows: --build-arg COMMIT="$(git rev-parse HEAD)". The image is built without .git.
ARG COMMIT=unknown
# The bundle holds all dependencies.
RUN LINKSPAN_COMMIT="${COMMIT}" npm run build

FROM ${UV_IMAGE} AS uv

# What both images have: an init, certificates, and the directories that the user may write.
FROM ${NODE_IMAGE} AS base
# Debian removes old versions, so a pinned one could not be built any longer; the digest of the base image fixes the suite.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates tini \
  && rm -rf /var/lib/apt/lists/* \
  && install --directory --owner=node --group=node --mode=0700 /var/lib/linkspan

# The files of the remote image: Node, the libraries that it is linked with, and no program besides the init.
FROM base AS remote-files
COPY deploy/docker/remote-files.sh /tmp/
RUN sh /tmp/remote-files.sh /rootfs

FROM scratch AS remote
COPY --from=remote-files /rootfs /
WORKDIR /app
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY deploy/docker/linkspan /usr/local/bin/
# MALLOC_…: buffers from 128 KiB on are returned to the system when they are free. docs/sizing.md has the figures.
# XDG_STATE_HOME: the commands find the gateway there while its config is broken.
# LINKSPAN_FIRST_KEY: what --first-key does, for every command that reads the config.
ENV NODE_ENV=production MALLOC_MMAP_THRESHOLD_=131072 LINKSPAN_FIRST_KEY=1 LINKSPAN_CONFIG=/etc/linkspan/config.yaml XDG_STATE_HOME=/var/lib/linkspan HOME=/home/node PATH=/usr/local/bin:/usr/bin
USER 1000:1000
EXPOSE 3000 3001
VOLUME ["/var/lib/linkspan"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --start-interval=2s \
  CMD ["linkspan", "healthcheck"]
ENTRYPOINT ["tini", "-s", "--", "node", "/app/dist/main.js"]
CMD ["run"]

# The last stage is the default one.
FROM base AS full
# uvx needs a Python: this one, or else it downloads one into the home directory.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends git python3 \
  && rm -rf /var/lib/apt/lists/*
COPY --from=uv /uv /uvx /usr/local/bin/
WORKDIR /app
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY deploy/docker/linkspan /usr/local/bin/
# MALLOC_…: buffers from 128 KiB on are returned to the system when they are free. docs/sizing.md has the figures.
# XDG_STATE_HOME: the commands find the gateway there while its config is broken.
# LINKSPAN_FIRST_KEY: what --first-key does, for every command that reads the config.
ENV NODE_ENV=production MALLOC_MMAP_THRESHOLD_=131072 LINKSPAN_FIRST_KEY=1 LINKSPAN_CONFIG=/etc/linkspan/config.yaml XDG_STATE_HOME=/var/lib/linkspan HOME=/home/node
USER 1000:1000
EXPOSE 3000 3001
# The state, and the home directory, where npx and uvx keep what they have downloaded.
VOLUME ["/var/lib/linkspan", "/home/node"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --start-interval=2s \
  CMD ["linkspan", "healthcheck"]
# Servers are processes whose orphans need an init that reaps them. With `init: true` the engine brings one too; -s lets both work.
ENTRYPOINT ["tini", "-s", "--", "node", "/app/dist/main.js"]
CMD ["run"]
