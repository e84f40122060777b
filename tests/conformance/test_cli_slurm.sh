# Under a real Slurm: a cluster of two nodes on loopback, made here and taken down at the end.
# Shares: Slurm
source tests/support/shell/harness.sh
source tests/support/shell/slurm.sh
FSDPRUN=$BIN/fsdprun
if missing=$(slurm_missing); then
  skip "fsdprun under a real srun" "$missing is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit 0
fi
at_exit() { slurm_down; }
slurm_up n linuxproc || { skip "fsdprun under a real srun" "$slurm_why"; exit 0; }
run() { timeout 1000 srun -Q "$@"; }

check_status "two tasks on two nodes are refused" 2 run -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python echo ran
check_eq "... and nothing is run" "" "$(cat "$WORK/out")"
check_eq "... each with the options to add" \
  "2 fsdprun: srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:29400 --secret-file FILE (or --standalone, for worlds of their own)" \
  "$(grep '^fsdprun:' "$WORK/err" | sort | uniq -c | sed 's/^ *//')"
check_eq "with --standalone each is a world of its own" "one of 1,one of 1," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --standalone --no-python sh -c 'echo one of $WORLD_SIZE' |
  tr '\n' ,)"
check_eq "one task is run" "one of 1" "$(run -n1 "$FSDPRUN" --no-python sh -c 'echo one of $WORLD_SIZE')"
printf 'a secret that is long enough to be one' > "$WORK/key"; chmod 600 "$WORK/key"
check_eq "with the options that were asked for it is one world" "0 of 2,1 of 2," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((slurm_base + 3))" --secret-file "$WORK/key" \
    --no-python sh -c 'echo $RANK of $WORLD_SIZE' 2> "$WORK/err" | sort | tr '\n' ,)"
printf '#!/bin/sh\n%s --no-python sh -c "echo \\$WORLD_SIZE in the script"\n' "$FSDPRUN" > "$WORK/batch"
check_status "a batch script of a job of two tasks" 0 timeout 1000 sbatch --wait -N2 --ntasks-per-node=1 -o "$WORK/batch.out" -e "$WORK/batch.err" "$WORK/batch"
check_eq "... is one process, and runs" "1 in the script" "$(cat "$WORK/batch.out")"
idle="fsdprun: this Slurm job has 2 nodes and only this one is used: start it by srun --ntasks-per-node=1, with --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:29400 --secret-file FILE (or --standalone, for this node alone)"
check_eq "... which says that the other node stands idle" "$idle" "$(cat "$WORK/batch.err")"
check_eq "an allocation without srun too" "1 in salloc" \
  "$(timeout 1000 salloc -Q -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python sh -c 'echo $WORLD_SIZE in salloc' 2> "$WORK/err")"
check_eq "... which says so too" "$idle" "$(cat "$WORK/err")"
check_status "with --standalone there" 0 timeout 1000 salloc -Q -N2 --ntasks-per-node=1 "$FSDPRUN" --standalone --no-python true
check_eq "... that is meant" "" "$(cat "$WORK/err")"
