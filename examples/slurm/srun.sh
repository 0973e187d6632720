#!/usr/bin/env bash
# Moves the shards of a plan by the tasks of one job of Slurm, all at once: one shard a task, and one
# task a node.
#
#     haul plan /data/run7 URL1 URL2 --shards 16 --out /shared/plan
#     sbatch --ntasks=16 srun.sh /shared/plan
#
# The nodes need haul, the plan, and the source under the path that was planned.
#
# To change: the lines below; --ntasks, which is the number of the plan's shards. With
# --ntasks-per-node=1 the job needs as many nodes as there are shards: with more shards than nodes
# sbatch refuses it, or it waits for ever. Then use an array job (array.sh), which also balances
# better, or let each node have several tasks by a larger number.
#
#SBATCH --job-name=haul
#SBATCH --output=haul-%j.log
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=12:00:00
#
# What the runs said stays, one below the other.
#SBATCH --open-mode=append
# When a node dies, Slurm runs the job again.
#SBATCH --requeue
# A minute before its time is over haul stops where the next run can resume.
#SBATCH --signal=TERM@60

plan=${1:?the directory of the plan}
restarts_max=5

# A task that fails ends none of the others, and nobody waits for it to do so.
srun --kill-on-bad-exit=0 --wait=0 --label --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    haul push --plan "$plan" --shard "auto/$SLURM_NTASKS" --wait
status=$?

# The status is the largest of all tasks. 0: all is there. 2: it would fail again, so correct the
# command, the plan or the token first. Anything else, a kill too: Slurm runs the job again, two
# minutes later, and the shards that are there already take little time.
if [ "$status" -ne 0 ] && [ "$status" -ne 2 ] &&
    [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts_max" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
