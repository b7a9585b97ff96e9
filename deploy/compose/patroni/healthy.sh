#!/bin/bash
# The health check of a PostgreSQL node: it accepts writes, or it may take over from the leader. A standby may do so only
# once Patroni counts it for acknowledgments, up to ten seconds after it has begun to follow.
pg_isready -q -h 127.0.0.1 -U postgres -d a2ad || exit 1
for role in leader quorum; do
	exec 3<>/dev/tcp/127.0.0.1/8008 || exit 1
	printf 'GET /%s HTTP/1.0\r\n\r\n' "$role" >&3
	read -r _ status _ <&3
	exec 3>&-
	if [[ $status == 200 ]]; then exit 0; fi
done
exit 1
