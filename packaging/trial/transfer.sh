#!/bin/sh
# Runs as root in a tree of a distribution without Rust: from nothing to a verified transfer by the
# installer, one server and one push. $1 is the host of the URL, a name that the host's resolver knows.
set -eu
host=$1
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
count=0
until grep -qs '"listening"' "$work/served"; do
    count=$((count + 1))
    [ "$count" -lt 300 ] || { echo "the server does not listen after 30 s"; exit 1; }
    sleep 0.1
done
url=$(grep '"listening"' "$work/served" | sed 's/.*"url":"\([^"]*\)".*/\1/')
case $url in *@"$host":*) ;; *) echo "the URL is not of $host"; exit 1 ;; esac
haul push "$work/file" "$url" >"$work/pushed" 2>&1 || { cat "$work/pushed"; exit 1; }
grep 'complete and verified' "$work/pushed"
wait "$server"
cmp "$work/file" "$work/there/file"
[ -s /usr/local/share/man/man1/haul-push.1 ]
