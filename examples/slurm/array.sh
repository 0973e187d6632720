#!/usr/bin/env bash
# Moves the shards of a plan by an array job of Slurm, one shard a task.
#
#     haul plan /data/run7 URL1 URL2 --shards 64 --out /shared/plan
#     sbatch --array=1-64%8 array.sh /shared/plan
#
# The nodes need haul, the plan, and the source under the path that was planned.
#
# To change: the lines below; the numbers of --array, which are those of the plan's shards; behind
# the %, how many of them run at a time.
#
#SBATCH --job-name=haul
#SBATCH --output=haul-%A_%a.log
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=12:00:00
#
# What the runs of a shard said stays, one below the other.
#SBATCH --open-mode=append
# When a node dies, Slurm runs the shard again on another.
#SBATCH --requeue
# A minute before its time is over haul stops where the next run can resume.
#SBATCH --signal=TERM@60

plan=${1:?the directory of the plan}
restarts_max=5

srun --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    haul push --plan "$plan" --shard auto --wait
status=$?

# 0: all is there. 2: it would fail again, so correct the command, the plan or the token first.
# Anything else, a kill too: Slurm runs the shard again, two minutes later.
if [ "$status" -ne 0 ] && [ "$status" -ne 2 ] &&
    [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts_max" ]; then
    # Not $SLURM_JOB_ID: the last task has the number of the whole array, which would run again.
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit "$status"
