#!/bin/sh
# Boots systemd in a tree of Debian where the package is installed, and uses both services as they
# are shipped, through an upgrade. $1 is the tree, $2 a haul of this host, $3 the place in the tree of
# a later package. The tree has namespaces and a cgroup of its own.
set -eu
tree=$1
haul=$2
later=$3
here=${0%/*}
. "$here/listening.sh"
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

sh -c 'echo $$ >"$0/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup -- sh "$@"' \
    "$group" "$here/boot.sh" "$tree" >"$work/console" 2>&1 &
guard=$!

# Runs words in the tree that was booted.
inside() {
    nsenter --target "$(pgrep -P "$guard")" --all --root --wd -- "$@"
}

# Runs words of this host on the network there.
beside() {
    nsenter --target "$(pgrep -P "$guard")" --net -- "$@"
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
    verified beside "$haul" push "$work/file" "$url" --protection "$protection"
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
