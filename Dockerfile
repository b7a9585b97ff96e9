# syntax=docker/dockerfile:1
# One static binary on nothing: no shell, no package manager, no root.
FROM golang:1.26 AS build
WORKDIR /src
# Modules first: they change less often than the code, and this layer is then kept.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=
ARG COMMIT=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make build ${VERSION:+VERSION="$VERSION"} ${COMMIT:+COMMIT="$COMMIT"}

# Agents that run commands (executor: exec) need those commands: FROM debian:stable-slim here instead, or the http executor.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/a2ad /a2ad
# A number, since there is no /etc/passwd here; Kubernetes' runAsNonRoot wants one too.
USER 65532:65532
# In a container the listeners face the container's network; what is published decides who reaches them.
ENV A2AD_LISTEN=:8080 A2AD_ADMIN_LISTEN=:9090
EXPOSE 8080 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=6 CMD ["/a2ad", "healthcheck"]
ENTRYPOINT ["/a2ad"]
CMD ["serve"]
