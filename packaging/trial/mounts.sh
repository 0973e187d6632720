# Loopback, /proc, /dev and /tmp of a tree. enter.sh and boot.sh read it by `.`.

# Mounts them in the tree $1; its own dev holds links and files until then.
mount_tree() {
    ip link set lo up
    mount -t proc proc "$1/proc"
    mount -t tmpfs tmpfs "$1/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$1/dev"
    for device in null zero full urandom random tty; do
        touch "$1/dev/$device"
        mount --bind "/dev/$device" "$1/dev/$device"
    done
    ln -s /proc/self/fd "$1/dev/fd"
    mkdir "$1/dev/shm"
}
