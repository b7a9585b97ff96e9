#!/bin/sh
# After the package was removed. Only a purge (deb) deletes the configuration, and the keys with it.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	;;
purge)
	rm -rf /etc/a2ad
	;;
esac
