#!/bin/sh
# Before the package is removed: remove (deb), 0 (rpm). An upgrade leaves the service alone.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now a2ad.service
	fi
	;;
esac
