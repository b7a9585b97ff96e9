# Stands in for postgres:17, with the same user (999), encoding and environment.
FROM debian:13
RUN groupadd --gid 999 postgres && useradd --uid 999 --gid 999 --home-dir /var/lib/postgresql --create-home postgres \
    && apt-get update -q && mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf \
    && apt-get install -q -y --no-install-recommends postgresql-17 \
    && install -d -o postgres -g postgres -m 3777 /run/postgresql && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8 PATH=/usr/lib/postgresql/17/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY --chmod=0755 postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
