# Sourced after harness.sh: a Slurm cluster on loopback, for one script.

# slurm_missing: prints the first program of Slurm that is not installed; false when all are.
slurm_missing() {
  local program
  for program in slurmctld slurmd srun sbatch; do
    command -v $program > /dev/null || { echo $program; return 0; }
  done
  return 1
}

# slurm_cannot NAME REASON: what is not tried here is skipped; where all must be tried (FSDP_NIGHTLY) it fails.
slurm_cannot() { if [ -n "${FSDP_NIGHTLY:-}" ]; then not_ok "$@"; else skip "$@"; fi; }

# slurm_up PREFIX PROCTRACK [NODES [LINES [GPUS]]]: starts the nodes PREFIX1, PREFIX2 and so on (two), with
# KillWait=5, further LINES of slurm.conf, and GPUS (none) on each node, and exports SLURM_CONF. With the prefix
# 127.0.0. nodes can be reached by their names. False when they do not come up; the reason is then in $slurm_why.
# $slurm_base + 9 ... + 99 are ports for the caller.
slurm_up() {
  local bound node gpus=${5:-0}
  unset "${!SLURM_@}" "${!PET_@}" 2> /dev/null
  slurm_dir=$WORK/slurm-$2 slurm_prefix=$1 slurm_nodes=${3:-2} slurm_base=$(port_block)
  mkdir -p "$slurm_dir"/{state,log}
  for node in $(seq "$slurm_nodes"); do mkdir -p "$slurm_dir/$1$node"; done
  # On loopback alone where that can be: it then looks its host's name up.
  getent hosts "$(uname -n)" > /dev/null && bound=CommunicationParameters=NoInAddrAny,NoCtldInAddrAny || bound=
  # Without control groups it is told a kind, or it looks for one.
  if ! grep -q ' cgroup2* ' /proc/self/mounts || grep -q ' cgroup .*freezer' /proc/self/mounts; then
    echo CgroupPlugin=cgroup/v1 > "$slurm_dir/cgroup.conf"
  fi
  # To Slurm a GPU is the number at the end of a character device's name.
  for ((node = 0; node < gpus; node++)); do ln -sf /dev/null "$slurm_dir/gpu$node"; done
  [ "$gpus" = 0 ] || echo "NodeName=$1[1-$slurm_nodes] Name=gpu File=$slurm_dir/gpu[0-$((gpus - 1))]" > "$slurm_dir/gres.conf"
  cat > "$slurm_dir/slurm.conf" << END
ClusterName=toy
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
$bound
SlurmctldPort=$slurm_base
SlurmctldPidFile=$slurm_dir/ctld.pid
SlurmctldLogFile=$slurm_dir/log/ctld.log
StateSaveLocation=$slurm_dir/state
SlurmdPidFile=$slurm_dir/%n.pid
SlurmdSpoolDir=$slurm_dir/%n
SlurmdLogFile=$slurm_dir/log/%n.log
ProctrackType=proctrack/$2
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=5
MpiDefault=none
SlurmdTimeout=300
$([ "$gpus" = 0 ] || echo GresTypes=gpu)
NodeName=$1[1-$slurm_nodes] NodeHostName=localhost NodeAddr=127.0.0.1 Port=[$((slurm_base + 1))-$((slurm_base + slurm_nodes))] CPUs=8 RealMemory=500$([ "$gpus" = 0 ] || echo " Gres=gpu:$gpus")
PartitionName=all Nodes=ALL Default=YES
${4:-}
END
  export SLURM_CONF=$slurm_dir/slurm.conf
  slurm_start > "$slurm_dir/log/start" 2>&1 && wait_until 60 all_idle && return 0
  slurm_why="no cluster came up here: $(tail -n 1 "$slurm_dir"/log/start "$slurm_dir"/log/*.log 2> /dev/null | grep -v '^$' | tail -n 1)"
  slurm_down
  return 1
}
slurm_start() {
  local node
  slurmctld || return 1
  for node in $(seq "$slurm_nodes"); do slurmd -N "$slurm_prefix$node" || return 1; done
}
all_idle() { [ "$(sinfo -h -N -p all -o %t | grep -cx idle)" = "$slurm_nodes" ]; }

# slurm_steps: the pids of this cluster's slurmstepd processes, which work in its folder of logs.
slurm_steps() {
  local pid
  for pid in $(pgrep -x slurmstepd); do [[ $(readlink "/proc/$pid/cwd") != "$slurm_dir"/* ]] || echo "$pid"; done
}
no_steps() { [ -z "$(slurm_steps)" ]; }

# slurm_down: ends the daemons of the last slurm_up, if it was called, and removes the control groups they
# made. A slurmstepd whose daemons go before it has reported the end of its step would stay.
slurm_down() {
  local file pids=() group
  [ -n "${slurm_dir:-}" ] || return 0
  timeout 100 scancel -u "$(id -un)" 2> /dev/null # of a script that was cut short
  wait_until 20 no_steps || kill -9 $(slurm_steps)
  for file in "$slurm_dir"/*.pid; do [ -s "$file" ] && pids+=("$(cat "$file")"); done
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2> /dev/null
  for file in "${pids[@]}"; do wait_until 20 bash -c "! kill -0 $file" || kill -9 "$file"; done
  for group in /sys/fs/cgroup/*/slurm_"$slurm_prefix"[12]; do
    [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} + 2> /dev/null
  done
  slurm_dir=
}
