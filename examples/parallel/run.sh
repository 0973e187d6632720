#!/usr/bin/env bash
# Moves the shards of a plan by GNU parallel, here or on several machines by ssh.
#
#     haul plan /data/run7 URL1 URL2 --shards 64 --out /shared/plan
#     run.sh /shared/plan n1,n2,n3
#
# The machines need haul, the plan, and the source, both under the same paths as here. Without names
# all runs are here. HAUL_TOKEN goes to the machines where it is set; whoever may see all processes
# there sees it then, but not a token that is in the plan.
#
# To change: the two numbers below. Start it again after a Ctrl-C or a crash: what the log in the
# plan's directory says is done is not run again.

plan=${1:?the directory of the plan}
machines=${2:-:}
runs_on_each=2
tries_max=5

# By ssh a command starts in another directory.
plan=$(CDPATH="" cd -- "$plan" && pwd) || exit 2
if grep -q '"growing"' "$plan/plan.json"; then
    echo "The plan is not whole: start this when haul plan has ended." >&2
    exit 2
fi
# Text behind a key of plan.json, which is a string without quotes in it, or a number.
value_of() {
    sed -nE "s/^(.*[{,])?[[:space:]]*\"$1\"[[:space:]]*:[[:space:]]*\"?([0-9A-Za-z_.-]+).*/\2/p" \
        "$plan/plan.json" | head -n 1
}
id=$(value_of id)
count=$(value_of shards)
if [ -z "$id" ] || [ -z "$count" ]; then
    echo "$plan/plan.json tells no id or no number of shards: make the plan again." >&2
    exit 2
fi
# Another plan in this place has another log: what this one has done says nothing of that.
log=$plan/parallel-$id.joblog
environment=()
if [ "$machines" != : ] && [ -n "${HAUL_TOKEN:-}" ]; then
    environment=(--env HAUL_TOKEN)
fi

# parallel ends at a Ctrl-C, and so does this.
trap 'exit 130' INT

for ((try = 1; try <= tries_max; try++)); do
    # --retries would run again what ended with 2, too. --resume-failed runs all that has not ended
    # with 0 by the log.
    seq "$count" | parallel --quote --sshlogin "$machines" --jobs "$runs_on_each" \
        "${environment[@]}" --joblog "$log" --resume-failed \
        haul push --plan "$plan" --shard "{}/$count" --wait && exit 0
    # The seventh column is the exit status; a shard's last line counts. With 2 it would fail again.
    mapfile -t refused < <(awk -F'\t' 'NR > 1 { last[$1] = $7 }
        END { for (shard in last) if (last[shard] == 2) print shard }' "$log")
    if [ ${#refused[@]} -gt 0 ]; then
        echo "Correct the command, the plan or the token first. Shards that ended with 2:" \
            "${refused[@]}" >&2
        exit 2
    fi
done
exit 1
