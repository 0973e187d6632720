#!/bin/sh
# Boots systemd in a tree of Debian where the package is installed, and uses both services as they
# are shipped, through an upgrade. $1 is the tree, $2 a haul of this host, $3 the place in the tree of
# a later package. The tree has namespaces and a cgroup of its own.
set -eu
tree=$1
haul=$2
later=$3
work=$(mktemp -d)
group=$(findmnt --noheadings --output TARGET --types cgroup2 | head -n 1)/haul-trial-$$
mkdir "$group"
guard=
end() {
    if [ -n "$guard" ]; then
        # systemd is the first process of its namespace: all others end with it.
        pkill -KILL -P "$guard" || :
        wait "$guard" 2>/dev/null || :
    fi
    # Groups below it are systemd's.
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || :
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

cat >"$work/boot" <<'END'
set -eu
cd "$1"
ip link set lo up
mount --make-rprivate /
mount --bind . .
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full urandom random tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts dev/mqueue dev/hugepages run/systemd before
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . before
exec chroot . /bin/sh -c 'umount -l /before; exec env -i container=haul-trial \
    PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --system --unit=multi-user.target'
END
sh -c 'echo $$ >"$0/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup -- sh "$@"' \
    "$group" "$work/boot" "$tree" >"$work/console" 2>&1 &
guard=$!

# Runs words in the tree that was booted.
inside() {
    nsenter --target "$(pgrep -P "$guard")" --all --root --wd -- "$@"
}

# Runs words of this host on the network there.
beside() {
    nsenter --target "$(pgrep -P "$guard")" --net -- "$@"
}

# Tries words for up to a minute.
within_a_minute() {
    count=0
    until "$@" 2>"$work/why"; do
        count=$((count + 1))
        [ "$count" -lt 300 ] || { echo "not within a minute: $*"; cat "$work/why"; exit 1; }
        sleep 0.2
    done
}

url_is_told() {
    inside journalctl --unit haul.service --output cat --no-pager >"$work/journal"
    grep -o 'haul://[^ ]*' "$work/journal" >"$work/urls"
}

within_a_minute inside systemctl start haul.service haul-media.service
within_a_minute url_is_told
url=$(head -n 1 "$work/urls")
export HAUL_STATE="$work/state"
head -c 67108864 /dev/urandom >"$work/file"
for protection in safe private; do
    beside "$haul" push "$work/file" "$url" --protection "$protection" >"$work/pushed" 2>&1 ||
        { cat "$work/pushed"; exit 1; }
    grep 'complete and verified' "$work/pushed"
    cmp "$work/file" "$tree/var/lib/haul/files/file"
    rm "$tree/var/lib/haul/files/file"
done
beside "$haul" push "$work/file" "$url" >/dev/null 2>&1
beside "$haul" pull "${url}file" "$work/back" >"$work/pulled" 2>&1 ||
    { cat "$work/pulled"; exit 1; }
cmp "$work/file" "$work/back"

echo film >"$tree/srv/film.txt"
asked() {
    beside curl --silent --fail http://127.0.0.1:8080/film.txt | grep -q film
}
within_a_minute asked
inside systemctl reload haul-media.service
within_a_minute asked

# An upgrade starts again what runs, and nothing else.
inside systemctl stop haul-media.service
process=$(inside systemctl show --property MainPID --value haul.service)
inside dpkg --install "$later" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[ "$(inside systemctl show --property MainPID --value haul.service)" != "$process" ] ||
    { echo "the upgrade left the old haul.service running"; exit 1; }
inside systemctl --quiet is-active haul.service
! inside systemctl --quiet is-active haul-media.service ||
    { echo "the upgrade started haul-media.service"; exit 1; }
beside "$haul" pull "${url}file" "$work/again" >"$work/pulled" 2>&1 ||
    { cat "$work/pulled"; exit 1; }
cmp "$work/file" "$work/again"

inside dpkg --remove haul >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
! pgrep --ns "$(pgrep -P "$guard")" --nslist pid haul || { echo "removing the package left a haul running"; exit 1; }
for unit in haul.service haul-media.service; do
    ! inside systemctl --quiet is-failed "$unit" || { echo "$unit failed"; exit 1; }
done
echo "both services ran as they are shipped, were upgraded, and ended in order"
