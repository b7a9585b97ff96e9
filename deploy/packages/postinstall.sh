#!/bin/sh
# After the installation or upgrade of the package. It starts nothing: a new installation has no database yet, and an
# upgrade must migrate before its servers start.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ ! -e /etc/a2ad/database-url ] || [ ! -e /etc/a2ad/keys ]; then
	echo "a2ad is installed, but not configured. Next: create /etc/a2ad/database-url and /etc/a2ad/keys."
	echo "https://github.com/a2ad/a2ad/blob/main/docs/how-to/deploy.md#packages"
else
	echo "a2ad was upgraded. To use the new version, run \"a2ad migrate up\" and then \"systemctl restart a2ad\"."
fi
