#!/usr/bin/env bash
# Moves the shards of a plan by GNU parallel, here or on several machines by ssh.
#
#     haul plan /data/run7 URL1 URL2 --shards 64 --out /shared/plan
#     run.sh /shared/plan n1,n2,n3
#
# The machines need haul, the plan, and the source under the path that was planned. Without names
# all runs are here.
#
# To change: the two numbers below. Start it again after a Ctrl-C or a crash: what the log beside
# the plan says is done is not run again.

plan=${1:?the directory of the plan}
plan=${plan%/}
machines=${2:-:}
runs_on_each=2
tries_max=5

if grep -q '"growing"' "$plan/plan.json"; then
    echo "The plan is not whole: start this when haul plan has ended." >&2
    exit 2
fi
log=$plan.joblog
shards=("$plan"/shard-*.jsonl)
count=${#shards[@]}

for ((try = 1; try <= tries_max; try++)); do
    # --retries would run again what ended with 2, too. --resume-failed runs all that has not ended
    # with 0 by the log.
    seq "$count" | parallel --quote --sshlogin "$machines" --jobs "$runs_on_each" \
        --joblog "$log" --resume-failed \
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
