# Stands in for haproxy:3.2-alpine, with the same user, file and command; wget is for the health check.
FROM debian:13
RUN apt-get update -q && apt-get install -q -y --no-install-recommends haproxy wget && rm -rf /var/lib/apt/lists/*
USER haproxy
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
