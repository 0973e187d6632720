#!/bin/sh
# Becomes systemd in the tree $1, its first process. It has namespaces of its own.
set -eu
. "${0%/*}/mounts.sh"
cd "$1"
mount --make-rprivate /
mount --bind . .
cd "$1"
mount_tree .
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mkdir dev/pts dev/mqueue dev/hugepages run/systemd before
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
pivot_root . before
exec chroot . /bin/sh -c 'umount -l /before; exec env -i container=haul-trial \
    PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --system --unit=multi-user.target'
