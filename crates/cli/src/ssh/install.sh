# Starts haul at the far end of ssh, and asks for it on standard input where there is none.
#
# install.rs puts values in front, leaves out these comments and joins the lines by blanks: `h` haul
# of the PATH, `n` name of a copy, `s` its SHA-256, `z` its bytes, `r` bytes of the request, `w` what
# uname(1) says at the near end, `k` number of the first copy that goes. So each line ends where a
# blank may stand, and none has a quote of the kind ' or an exclamation mark.
if command -v $h >/dev/null 2>&1; then exec $h serve --over-ssh; fi;

# A frame has 1023 bytes of JSON, padded with blanks: sh(1) counts no bytes portably.
say() { printf "\377haul over ssh\n\000\000\000\003\377%-1023.1023s" "$1"; };
clean() { printf %s "$1" | tr "\n" " " | tr -cd "A-Za-z0-9 ._:;,/+()=@-" | cut -c1-200; };
no() {
    say "{\"refused\":{\"what\":\"$1\",\"needs\":\"$2\",\"found\":\"$(clean "$3")\",\"hint\":\"$4\"}}";
    exit 2;
};
cannot() { no "haul cannot be copied there" "$@"; };

# A directory counts where it belongs to the user and is no symbolic link, so that nobody else
# changes a program in it between its check and its start.
own() { if [ -h "$1" ]; then return 1; fi; [ -d "$1" ] && [ -O "$1" ]; };
fits() { [ -f "$1" ] && [ -O "$1" ] && [ "$(sha256sum < "$1" | cut -c1-64)" = "$s" ]; };
runs() { "$1" --version </dev/null >/dev/null 2>&1; };

u=$(id -u);
set -- "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/haul}" "${HOME:+$HOME/.cache/haul}"
    "${HOME:+$HOME/.local/lib/haul}" "${TMPDIR:-/tmp}/haul-$u" "/var/tmp/haul-$u" "/tmp/haul-$u";
if command -v sha256sum >/dev/null 2>&1; then :; else
    cannot "sha256sum there, of coreutils or busybox" "none" "install haul there";
fi;
for c do
    case "$c" in /*) ;; *) continue ;; esac;
    f="$c/$n";
    own "$c" && chmod 700 "$c" 2>/dev/null || continue;
    if fits "$f" && runs "$f"; then touch "$f"; exec "$f" serve --over-ssh; fi;
done;

m=$(uname -sm);
if [ "$m" = "$w" ]; then :; else
    cannot "the system of this program, $w" "$m" "install a haul there that was built for it";
fi;
umask 077;
g=;
for c do
    case "$c" in /*) ;; *) continue ;; esac;
    mkdir -p "$c" 2>/dev/null;
    own "$c" || continue;
    chmod 700 "$c" 2>/dev/null || continue;
    p="$c/part-$(uname -n)-$$";
    { echo "exit 0" > "$p"; } 2>/dev/null || continue;
    chmod 700 "$p";
    if "$p" </dev/null >/dev/null 2>&1; then g="$c"; fi;
    rm -f "$p";
    if [ -n "$g" ]; then break; fi;
done;
if [ -z "$g" ]; then
    cannot "a directory of your own where programs may run" "none of $*" "set XDG_CACHE_HOME there";
fi;

# The request comes again behind the program, for a head(1) may read further than it is told.
trap "rm -f \"\$p\"" 0;
trap "exit 1" 1 2 13 15;
head -c $r >/dev/null;
say "{\"lacks\":{\"directory\":\"$(clean "$g")\"}}";
head -c $z > "$p";
if fits "$p"; then :; else
    no "haul did not arrive there whole" "room for $z bytes" "$(wc -c < "$p") bytes in $g"
        "see df there; the same command copies it anew";
fi;
chmod 700 "$p";
v=$("$p" --version 2>&1 </dev/null) || no "this haul cannot run there" "a machine like this one" "$v"
    "install a haul there that was built for it";
mv -f "$p" "$g/$n" || no "haul cannot be named there" "" "$g" "";
(
    cd "$g" || exit;
    ls -t | grep "^haul-" | tail -n +$k | while read -r f; do rm -f "$f"; done;
    find . -name "part-*" -mtime +0 -exec rm -f {} +;
) </dev/null >/dev/null 2>&1;
say "{\"installed\":{}}";
exec "$g/$n" serve --over-ssh
