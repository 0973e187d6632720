#!/bin/sh
# Runs as root in a tree of a distribution without Rust: from nothing to a verified transfer by the
# installer, one server and one push. $1 is the host of the URL, a name that the host's resolver knows.
set -eu
host=$1
. "${0%/*}/listening.sh"
grep -qs localhost /etc/hosts || echo "127.0.0.1 localhost" >>/etc/hosts
work=$(mktemp -d -p /var/tmp)
mkdir "$work/there"
! command -v cargo rustc || { echo "this tree has Rust"; exit 1; }

sh /release/install.sh --from /release --prefix /usr/local >"$work/installed"
cat "$work/installed"
PATH=/usr/local/bin:$PATH
head -c 67108864 /dev/urandom >"$work/file"

HAUL_STATE=$work/state haul serve "$work/there" --listen :0 --advertise "$host" --once --json \
    >"$work/served" &
server=$!
await_url "$work/served"
case $url in *@"$host":*) ;; *) echo "the URL is not of $host"; exit 1 ;; esac
verified haul push "$work/file" "$url"
wait "$server"
cmp "$work/file" "$work/there/file"
[ -s /usr/local/share/man/man1/haul-push.1 ]
