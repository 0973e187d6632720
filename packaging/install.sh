#!/bin/sh
# Installs haul from a release: picks the archive of this machine, checks its SHA-256, and puts the
# program, man pages and completions below a prefix. Nothing changes there before all is checked;
# the program is the last file, and each gets its name by a rename.
set -eu
umask 022

usage() {
    cat <<'END'
usage: install.sh --from URL|DIR [--prefix DIR] [--version VERSION] [--sha256 DIGEST]

  --from     where the release is: http://, https:// or file://, or a directory; it holds SHA256SUMS
             and the archives. $HAUL_FROM is the default
  --prefix   what gets bin/haul and share/; the default is /usr/local for root, else ~/.local
  --version  the release to install, where there are several
  --sha256   the digest that the archive must have, when you know it from elsewhere. SHA256SUMS comes
             from where the archive comes from: it finds damage, not a forger of both
END
}

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Writes the file $1 of the release to $2.
get() {
    case $from in
        http://* | https://*)
            if has curl; then
                curl -fsSL --retry 2 -o "$2" "$from/$1"
            elif has wget; then
                wget -q -O "$2" "$from/$1"
            else
                fail "not started: needs curl or wget to read $from, found neither"
            fi
            ;;
        file://*) cp -- "${from#file://}/$1" "$2" ;;
        *://*) fail "cannot read $from: only http://, https://, file:// and directories" ;;
        *) cp -- "$from/$1" "$2" ;;
    esac
}

# Prints the SHA-256 of a file.
digest_of() {
    if has sha256sum; then
        sha256sum <"$1" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a 256 <"$1" | cut -d ' ' -f 1
    elif has openssl; then
        openssl dgst -sha256 -r <"$1" | cut -d ' ' -f 1
    else
        fail "not started: needs sha256sum, shasum or openssl to check the archive, found none"
    fi
}

# The architecture as the archives name it.
architecture() {
    [ "$(uname -s)" = Linux ] || fail "not started: haul needs Linux, found $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) echo x86_64 ;;
        aarch64 | arm64) echo aarch64 ;;
        *) fail "not started: there are archives for x86_64 and aarch64, this is $(uname -m)" ;;
    esac
}

# Prints the line of SHA256SUMS for this machine's archive.
line_of_archive() {
    lines=$(grep -E "^[0-9a-f]{64} [ *]haul-${version:-[0-9][^ ]*}-$1-linux\\.tar\\.gz\$" "$2" || :)
    [ -n "$lines" ] || fail "$from/SHA256SUMS has no haul-${version:-VERSION}-$1-linux.tar.gz"
    [ "$(printf '%s\n' "$lines" | wc -l)" -eq 1 ] ||
        fail "$from has several releases; choose one by --version:
$(printf '%s\n' "$lines" | cut -c 67-)"
    printf '%s\n' "$lines"
}

# Puts the file $1 at $2 with the mode $3, by a rename.
place() {
    mkdir -p -- "${2%/*}" || return 1
    if cp -- "$1" "$2.new$$" && chmod "$3" "$2.new$$" && mv -f -- "$2.new$$" "$2"; then
        return 0
    fi
    rm -f -- "$2.new$$"
    return 1
}

no_place() {
    fail "nothing installed: cannot write to $prefix/bin. Choose another by --prefix"
}

install_tree() {
    for page in "$1"/man/*.1; do
        place "$page" "$prefix/share/man/man1/${page##*/}" 644 || return 1
    done
    place "$1/completions/haul.bash" "$prefix/share/bash-completion/completions/haul" 644 &&
        place "$1/completions/_haul" "$prefix/share/zsh/site-functions/_haul" 644 &&
        place "$1/completions/haul.fish" "$prefix/share/fish/vendor_completions.d/haul.fish" 644 &&
        place "$1/haul" "$prefix/bin/haul" 755
}

main() {
    from=${HAUL_FROM:-}
    prefix=
    version=
    expected=
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h)
                usage
                exit 0
                ;;
            --from | --prefix | --version | --sha256)
                [ $# -ge 2 ] || fail "$1 needs a value"
                case $1 in
                    --from) from=$2 ;;
                    --prefix) prefix=$2 ;;
                    --version) version=$2 ;;
                    --sha256) expected=$2 ;;
                esac
                shift 2
                ;;
            *)
                usage >&2
                fail "cannot read the argument $1"
                ;;
        esac
    done
    [ -n "$from" ] || fail "not started: needs --from URL|DIR, where the release is"
    from=${from%/}
    if [ -z "$prefix" ]; then
        if [ "$(id -u)" -eq 0 ]; then
            prefix=/usr/local
        else
            prefix=${HOME:?"names no home directory; say --prefix"}/.local
        fi
    fi
    machine=$(architecture)

    mkdir -p -- "$prefix/bin" 2>/dev/null || no_place
    work=$(mktemp -d "$prefix/bin/.haul-install.XXXXXX" 2>/dev/null) || no_place
    # What is unpacked lies beside its later place, as a temporary directory may forbid programs.
    trap 'rm -rf -- "$work"' EXIT
    trap 'exit 1' HUP INT TERM

    get SHA256SUMS "$work/SHA256SUMS" ||
        fail "nothing installed: cannot get $from/SHA256SUMS, so no archive could be checked"
    line=$(line_of_archive "$machine" "$work/SHA256SUMS")
    archive=$(printf '%s\n' "$line" | cut -c 67-)
    [ -n "$expected" ] || expected=$(printf '%s\n' "$line" | cut -c -64)
    get "$archive" "$work/$archive" || fail "nothing installed: cannot get $from/$archive"
    found=$(digest_of "$work/$archive")
    if [ "$found" != "$expected" ]; then
        fail "nothing installed: $archive is not the file that was released
  expected SHA-256 $expected
  found    SHA-256 $found, $(wc -c <"$work/$archive") bytes
Download it again; if it stays so, tell whoever runs $from"
    fi

    tar -xzf "$work/$archive" -C "$work" || fail "nothing installed: cannot unpack $archive"
    tree=$work/${archive%.tar.gz}
    said=$("$tree/haul" --version 2>&1) ||
        fail "nothing installed: haul does not start here. It needs glibc 2.17 or newer: $said"
    install_tree "$tree" || fail "the program was not installed: cannot write below $prefix"
    echo "$said is installed: $prefix/bin/haul"
    case :$PATH: in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not in PATH; add it:  PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

# All is read before any of it runs, so that half a download does nothing.
main "$@"
