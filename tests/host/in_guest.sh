#!/bin/sh
# Runs pytest as the only thing on a lab kernel that plays the host: sh tests/host/in_guest.sh PYTEST-ARGUMENTS…
# The host's temporary files, which others change meanwhile, are out of its sight.
set -e
mount -t tmpfs tmp /tmp
mount -t tmpfs tmp /var/tmp
export HOME=/root # where the caches of libraries are, which are no trace of a run
exec .venv/bin/python -m pytest -p no:cacheprovider --color=no "$@"
