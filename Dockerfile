# syntax=docker/dockerfile:1
# One static binary in an empty image: no shell, no package manager, no root.
FROM golang:1.26 AS build
WORKDIR /src
# Modules first: they change less often than the code, so this layer stays cached.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=
ARG COMMIT=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOFLAGS=-trimpath make build ${VERSION:+VERSION="$VERSION"} ${COMMIT:+COMMIT="$COMMIT"}

# Agents that run commands (executor: exec) need those commands: use FROM debian:stable-slim, or the http executor.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/a2ad /a2ad
# A number, because there is no /etc/passwd; Kubernetes' runAsNonRoot needs one too.
USER 65532:65532
# In a container the listeners bind to the container's network; published ports decide who reaches them.
ENV A2AD_LISTEN=:8080 A2AD_ADMIN_LISTEN=:9090
EXPOSE 8080 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=6 CMD ["/a2ad", "healthcheck"]
ENTRYPOINT ["/a2ad"]
CMD ["serve"]
