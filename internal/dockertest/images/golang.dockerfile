# Stands in for golang:1.26: the Go of this machine, which is the build context, and what `make build` needs.
FROM debian:13
RUN apt-get update -q && apt-get install -q -y --no-install-recommends make git ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY . /usr/local/go
ARG GOPROXY
ARG GOSUMDB
ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOPATH=/go
ENV GOPROXY=$GOPROXY GOSUMDB=$GOSUMDB GOTOOLCHAIN=local
