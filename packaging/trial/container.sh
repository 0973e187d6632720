#!/bin/sh
# Builds the container image by buildah, with a tree of a distribution as its base, and moves a file
# into a container that runs it. $1 is the release's directory, $2 the Containerfile, $3 the tree,
# a tar archive, $4 a haul of this host. Images are kept in a directory that goes at the end.
set -eu
release=$1
containerfile=$2
tree=$3
haul=$4
. "${0%/*}/listening.sh"
work=$(mktemp -d)
server=
end() {
    # Whoever holds the container's directory ends before it goes.
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || :
        wait "$server" || :
    fi
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

images() {
    verb=$1
    shift
    buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$verb" "$@"
}

mkdir "$work/base" "$work/files"
tar --extract --numeric-owner --exclude='./dev/*' --file "$tree" --directory "$work/base"
base=$(images from scratch)
images copy --quiet "$base" "$work/base" / >/dev/null
images commit --quiet "$base" localhost/base >/dev/null
images bud --quiet --isolation chroot --build-arg BASE=localhost/base --tag haul \
    --file "$containerfile" "$release" >/dev/null
container=$(images from localhost/haul)
user=$(images run --isolation chroot "$container" -- id -u)
[ "$user" = 7117 ] || { echo "the container's user is $user, not 7117"; exit 1; }

images run --isolation chroot "$container" -- \
    haul serve /data --listen 127.0.0.1:0 --advertise 127.0.0.1 --once --json >"$work/served" &
server=$!
await_url "$work/served"
head -c 16777216 /dev/urandom >"$work/file"
verified env HAUL_STATE="$work/state" "$haul" push "$work/file" "$url"
wait "$server"
server=
images run --isolation chroot "$container" -- sha256sum /data/file |
    cut -d ' ' -f 1 >"$work/there"
[ "$(sha256sum <"$work/file" | cut -d ' ' -f 1)" = "$(cat "$work/there")" ]
echo "the image runs as the user $user"
