# Under a real Slurm: a cluster of two nodes on loopback, made here and taken down at the end.
source tests/support/harness.sh
FSDPRUN=$BIN/fsdprun
for program in slurmctld slurmd srun sbatch; do
  command -v $program > /dev/null && continue
  skip "fsdprun under a real srun" "$program is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit 0
done
unset "${!SLURM_@}" "${!PET_@}" 2> /dev/null
cluster=$WORK/slurm
mkdir -p "$cluster"/{state,log,n1,n2}
base=$((22000 + RANDOM % 8000))
# On loopback alone where that can be: it then looks its host's name up. Without control groups it is told a kind, or it looks for one.
getent hosts "$(uname -n)" > /dev/null && bound=CommunicationParameters=NoInAddrAny,NoCtldInAddrAny || bound=
grep -q ' cgroup2* ' /proc/self/mounts || echo CgroupPlugin=cgroup/v1 > "$cluster/cgroup.conf"
cat > "$cluster/slurm.conf" << END
ClusterName=toy
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
$bound
SlurmctldPort=$base
SlurmctldPidFile=$cluster/ctld.pid
SlurmctldLogFile=$cluster/log/ctld.log
StateSaveLocation=$cluster/state
SlurmdPidFile=$cluster/%n.pid
SlurmdSpoolDir=$cluster/%n
SlurmdLogFile=$cluster/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=5
MpiDefault=none
NodeName=n[1-2] NodeHostName=localhost NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 2))] CPUs=8 RealMemory=500
PartitionName=all Nodes=ALL Default=YES
END
export SLURM_CONF=$cluster/slurm.conf
at_exit() {
  local file pids=()
  for file in "$cluster"/*.pid; do [ -s "$file" ] && pids+=("$(cat "$file")"); done
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2> /dev/null
  for file in "${pids[@]}"; do wait_until 20 bash -c "! kill -0 $file" || kill -9 "$file"; done
}
slurmctld > "$cluster/log/start" 2>&1 && slurmd -N n1 >> "$cluster/log/start" 2>&1 && slurmd -N n2 >> "$cluster/log/start" 2>&1
both_idle() { [ "$(sinfo -h -N -o %t | grep -cx idle)" = 2 ]; }
if ! wait_until 60 both_idle; then
  skip "fsdprun under a real srun" "no cluster came up here: $(tail -n 1 "$cluster/log/start" "$cluster"/log/*.log 2> /dev/null | grep -v '^$' | tail -n 1)"
  exit 0
fi
run() { timeout 100 srun -Q "$@"; }

check_status "two tasks on two nodes are refused" 2 run -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python echo ran
check_eq "... and nothing is run" "" "$(cat "$WORK/out")"
check_eq "... each with the options to add" \
  "2 fsdprun: srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:29400 --secret-file FILE (or --standalone, for worlds of their own)" \
  "$(grep '^fsdprun:' "$WORK/err" | sort | uniq -c | sed 's/^ *//')"
check_status "four tasks on two nodes are refused" 2 run -N2 --ntasks-per-node=2 "$FSDPRUN" --no-python echo ran
check_match "... one a node is what to start" 'start one a node \(srun --ntasks-per-node=1\) with --nproc-per-node 2 and add --nnodes 2' "$(cat "$WORK/err")"
check_status "two tasks on one node are refused" 2 run -N1 -n2 "$FSDPRUN" --no-python echo ran
check_match "... one with two workers is what to start" 'start it once, with --nproc-per-node 2' "$(cat "$WORK/err")"
check_eq "with --standalone each is a world of its own" "one of 1,one of 1," "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --standalone --no-python sh -c 'echo one of $WORLD_SIZE' | tr '\n' ,)"
check_eq "one task is run" "one of 1" "$(run -n1 "$FSDPRUN" --no-python sh -c 'echo one of $WORLD_SIZE')"
printf 'a secret that is long enough to be one' > "$WORK/key"; chmod 600 "$WORK/key"
check_eq "with the options that were asked for it is one world" "0 of 2,1 of 2," \
  "$(run -N2 --ntasks-per-node=1 "$FSDPRUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((base + 3))" --secret-file "$WORK/key" \
    --no-python sh -c 'echo $RANK of $WORLD_SIZE' 2> "$WORK/err" | sort | tr '\n' ,)"
printf '#!/bin/sh\n%s --no-python sh -c "echo \\$WORLD_SIZE in the script"\n' "$FSDPRUN" > "$WORK/batch"
check_status "a batch script of a job of two tasks" 0 timeout 100 sbatch --wait -N2 --ntasks-per-node=1 -o "$WORK/batch.out" "$WORK/batch"
check_eq "... is one process, and runs" "1 in the script" "$(cat "$WORK/batch.out")"
check_eq "an allocation without srun too" "1 in salloc" \
  "$(timeout 100 salloc -Q -N2 --ntasks-per-node=1 "$FSDPRUN" --no-python sh -c 'echo $WORLD_SIZE in salloc')"
[ "$n_failed" = 0 ]
