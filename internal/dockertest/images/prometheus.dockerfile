# Stands in for prom/prometheus:v3.5.0, with the same user, directories and entry point; wget is for the health check.
FROM debian:13
RUN apt-get update -q && apt-get install -q -y --no-install-recommends prometheus wget && \
	rm -rf /var/lib/apt/lists/* && mkdir -p /prometheus && chown 65534:65534 /prometheus
USER 65534:65534
WORKDIR /prometheus
VOLUME /prometheus
ENTRYPOINT ["/bin/prometheus"]
