# syntax=docker/dockerfile:1

# By tag, so that this file can be read and renovated. For a build that can be repeated, put the digest of the day behind it:
#   docker buildx imagetools inspect node:24-trixie-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg NODE_IMAGE=node:24-trixie-slim@sha256:… .
ARG NODE_IMAGE=node:24-trixie-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY scripts/node-pin/package.json scripts/node-pin/
# With the optional ones: the bundler's own binary is one of them.
RUN npm ci --no-audit --no-fund
COPY tsconfig.json ./
COPY scripts/build.ts scripts/
COPY src src
RUN npm run build

FROM ${NODE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY scripts/node-pin/package.json scripts/node-pin/
RUN npm ci --omit=dev --omit=optional --no-audit --no-fund

FROM ${NODE_IMAGE}
# stdio upstreams are processes whose orphans somebody must reap.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates tini \
  && rm -rf /var/lib/apt/lists/* \
  && install --directory --owner=node --group=node --mode=0700 /var/lib/linkspan
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
ENV NODE_ENV=production
USER node
EXPOSE 3000 3001
VOLUME ["/var/lib/linkspan"]
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:3001/livez').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tini", "-s", "--", "node", "/app/dist/main.js"]
CMD ["run", "--config", "/etc/linkspan/config.yaml"]
