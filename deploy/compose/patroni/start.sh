#!/bin/sh
# Writes Patroni's configuration, with the name of the node (NODE) and the passwords, and starts Patroni. The file is
# in memory, and patronictl reads it, too.
set -eu
umask 077
secrets=/run/secrets/postgres
sed -e "s/\$NODE/$NODE/" -e "s/\$SUPERUSER/$(cat $secrets/superuser)/" \
	-e "s/\$REPLICATION/$(cat $secrets/replication)/" -e "s/\$RESTAPI/$(cat $secrets/restapi)/" \
	/etc/patroni/template.yml >"$PATRONICTL_CONFIG_FILE"
exec patroni "$PATRONICTL_CONFIG_FILE"
