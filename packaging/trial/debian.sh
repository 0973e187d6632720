#!/bin/sh
# Runs as root in a tree of Debian: installs, upgrades, removes and purges the package, and looks at
# what is there before and after. $1 is the package, $2 a later version of it.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# Files that are there; not those that dpkg and adduser keep of any package.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /release \
        -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune \
        -o -print | grep -v '^/etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-$' | sort
}

expect() {
    [ "$1" = "$2" ] || { echo "expected $1, found $2"; exit 1; }
}

files >/tmp/before
getent passwd | sort >/tmp/users_before

# Home, shell and groups of the user of the services.
user() {
    getent passwd haul | cut -d: -f6-
    id --groups --name haul
}

# Without the package systemd-sysusers makes the user, out of the archive: it is the same one.
tar -xzOf /release/haul-*-linux.tar.gz --wildcards '*/systemd/haul.sysusers' >/tmp/haul.conf
systemd-sysusers /tmp/haul.conf
user >/tmp/user
expect /var/lib/haul "$(getent passwd haul | cut -d: -f6)"
userdel haul

dpkg --install "$1" >/tmp/log || { cat /tmp/log; exit 1; }
/usr/bin/haul --version
expect "$(cat /tmp/user)" "$(user)"
dpkg --verify haul
for unit in haul.service haul-media.service; do
    systemd-analyze verify --man=no /usr/lib/systemd/system/$unit
    systemd-analyze security --offline=true --threshold=25 /usr/lib/systemd/system/$unit |
        tail -n 1
done
systemctl --no-reload enable haul.service 2>/dev/null

echo '# changed by the administrator' >>/etc/default/haul
mkdir -p /var/lib/haul/state /var/lib/haul/files
echo key >/var/lib/haul/state/key
dpkg --install "$2" >/tmp/log || { cat /tmp/log; exit 1; }
expect key "$(cat /var/lib/haul/state/key)"
tail -n 1 /etc/default/haul | grep -q administrator
expect enabled "$(systemctl is-enabled haul.service)"
/usr/bin/haul --version

dpkg --remove haul >/tmp/log || { cat /tmp/log; exit 1; }
[ ! -e /usr/bin/haul ] || { echo "haul is still there"; exit 1; }
[ -e /etc/default/haul ]
[ ! -L /etc/systemd/system/multi-user.target.wants/haul.service ]
dpkg --purge haul >/tmp/log || { cat /tmp/log; exit 1; }
files >/tmp/after
diff /tmp/before /tmp/after || { echo "purging left files behind"; exit 1; }
getent passwd | sort | diff /tmp/users_before - || { echo "purging left a user behind"; exit 1; }

# What was received is not the package's to remove.
dpkg --install "$1" >/tmp/log
mkdir -p /var/lib/haul/files
echo data >/var/lib/haul/files/received
dpkg --purge haul >/tmp/log
expect data "$(cat /var/lib/haul/files/received)"
getent passwd haul >/dev/null
echo "installed, upgraded, removed and purged: nothing left behind"
