# What the trials share: waiting for a server, its URL, and a push to it. They read it by `.`.
# shellcheck shell=sh disable=SC2034,SC2154 # what reads it has `work`, and uses `url`

# Tries words for up to a minute; what they said last is in the file $work/why.
within_a_minute() {
    count=0
    until "$@" 2>"$work/why"; do
        count=$((count + 1))
        [ "$count" -lt 300 ] || { echo "not within a minute: $*"; cat "$work/why"; exit 1; }
        sleep 0.2
    done
}

# Waits until a server whose events go to the file $1 listens, and sets `url` to what it told.
await_url() {
    within_a_minute grep -q '"listening"' "$1"
    url=$(grep '"listening"' "$1" | sed 's/.*"url":"\([^"]*\)".*/\1/')
}

# Runs words, a push or a pull, that must say that the file arrived.
verified() {
    "$@" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
    grep 'complete and verified' "$work/said"
}
