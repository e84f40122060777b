# Under a real Slurm: a cluster of two nodes on loopback, made here and taken down at the end.
# Shares: Slurm
source tests/support/shell/harness.sh
source tests/support/shell/slurm.sh
if missing=$(slurm_missing); then
  skip "fsdprun under a real srun" "$missing is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit 0
fi
at_exit() { slurm_down; }
slurm_up 127.0.0. linuxproc || { skip "fsdprun under a real srun" "$slurm_why"; exit 0; }
run() { timeout 1000 srun -Q "$@"; }

check_eq "two tasks on two nodes are one world, without any option" "0 of 2,1 of 2," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python sh -c 'echo $RANK of $WORLD_SIZE' 2> "$WORK/err" | sort | tr '\n' ,)"
check_status "with --nnodes 1 they are refused" 2 run -N2 --ntasks-per-node=1 "$FSDPRUN" --nnodes 1 --no-python echo ran
check_eq "... and nothing is run" "" "$(cat "$WORK/out")"
check_eq "... each with the options to add" \
  "2 fsdprun: srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --secret-file FILE (or --standalone, for worlds of their own)" \
  "$(grep '^fsdprun:' "$WORK/err" | sort | uniq -c | sed 's/^ *//')"
check_eq "with --standalone each is a world of its own" "one of 1,one of 1," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --standalone --no-python sh -c 'echo one of $WORLD_SIZE' |
  tr '\n' ,)"
check_eq "one task is run" "one of 1" "$(run -n1 "$FSDPRUN" --no-python sh -c 'echo one of $WORLD_SIZE')"
check_eq "several on one node are its workers" "0 of 3,1 of 3,2 of 3," \
  "$(run -N1 -n3 "$FSDPRUN" --no-python sh -c 'echo $RANK of $WORLD_SIZE' 2> "$WORK/err" | sort | tr '\n' ,)"
printf 'a secret that is long enough to be one' > "$WORK/key"; chmod 600 "$WORK/key"
check_eq "with options that arrange the nodes it is one world" "0 of 2,1 of 2," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((slurm_base + 9))" --secret-file "$WORK/key" \
    --no-python sh -c 'echo $RANK of $WORLD_SIZE' 2> "$WORK/err" | sort | tr '\n' ,)"
printf '#!/bin/sh\n%s --no-python sh -c "echo \\$WORLD_SIZE in the script"\n' "$FSDPRUN" > "$WORK/batch"
check_status "a batch script of a job of two nodes, without srun" 2 timeout 1000 sbatch --wait -N2 --ntasks-per-node=1 -o "$WORK/batch.out" -e "$WORK/batch.err" "$WORK/batch"
idle="fsdprun: this Slurm job has 2 nodes, and only this one would be used; start it by srun: srun --ntasks-per-node=1 fsdprun ... sh (or add --standalone, for this node alone)"
check_eq "... says what to type" "$idle" "$(cat "$WORK/batch.err")"
check_eq "... and runs nothing" "" "$(cat "$WORK/batch.out")"
check_status "a batch script of a job of two tasks on one node" 0 timeout 1000 sbatch --wait -N1 --ntasks-per-node=2 -o "$WORK/batch.out" -e "$WORK/batch.err" "$WORK/batch"
check_eq "... is one process, and runs" "1 in the script" "$(cat "$WORK/batch.out")"
check_status "an allocation without srun" 2 timeout 1000 salloc -Q -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python sh -c 'echo $WORLD_SIZE in salloc'
check_eq "... says so too" "$idle" "$(cat "$WORK/err")"
check_status "with --standalone there" 0 timeout 1000 salloc -Q -N2 --ntasks-per-node=1 "$FSDPRUN" --standalone --no-python true
check_eq "... that is meant" "" "$(cat "$WORK/err")"
lists=('n1,n2' 'n[1-4]' 'n[03-05,7],m1' 'r[1-2]n[5,7]' 'n[098-101]' 'n[8-11]' '127.0.0.[1-3]')
for list in "${lists[@]}"; do
  check_eq "the first host of $list is scontrol's" "$(scontrol show hostnames "$list" | head -n 1)" \
    "$(SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE='1(x9)' SLURM_STEP_NODELIST=$list \
      SLURM_STEP_NUM_NODES=$(scontrol show hostnames "$list" | wc -l) "$FSDPRUN" --dry-run --insecure x.py | sed -n 's/^rdzv_host: "\([^"]*\)".*SLURM_STEP_NODELIST/\1/p')"
done
