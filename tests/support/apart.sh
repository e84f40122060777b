#!/bin/sh
# apart.sh DIRECTORY COMMAND...: runs the command where DIRECTORY is an empty one of its own, as on a host with its own disk.
directory=$1; shift
exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$directory" "$@"
