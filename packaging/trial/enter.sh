#!/bin/sh
# Runs words in a tree, by chroot. $1 is the tree; the words follow. It has namespaces of its own.
set -eu
. "${0%/*}/mounts.sh"
mount_tree "$1"
exec chroot "$@"
