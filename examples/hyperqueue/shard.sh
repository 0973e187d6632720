#!/usr/bin/env bash
#HQ --name=haul
#HQ --cpus=2
#HQ --crash-limit=5

# Moves the shards of a plan by a task array of HyperQueue, one shard a task.
#
#     haul plan /data/run7 URL1 URL2 --shards 64 --out /shared/plan
#     hq submit --array=1-64 shard.sh /shared/plan
#
# The workers need haul, the plan, and the source under the path that was planned.
#
# To change: the lines above; the numbers of --array, which are those of the plan's shards.
#
# When a worker is lost, HyperQueue gives the shard to another, so often as --crash-limit says. A
# task that fails it does not run again, so this script tries several times. What failed after that
# is run again by
#
#     hq submit --array="$(hq job task-ids last --filter=failed)" shard.sh /shared/plan

plan=${1:?the directory of the plan}
tries_max=5

# haul ends at a SIGINT, and so does this.
trap 'exit 130' INT

for ((try = 1; try <= tries_max; try++)); do
    haul push --plan "$plan" --shard auto --wait
    status=$?
    # 0: all is there. 2: it would fail again, so correct the command, the plan or the token first.
    if [ "$status" -eq 0 ] || [ "$status" -eq 2 ]; then
        exit "$status"
    fi
    sleep "${PAUSE_S:-30}"
done
exit "$status"
