# The zero-option runs under a real Slurm of four nodes: jobs, a task a GPU, arrays, heterogeneous steps, requeue,
# preemption and a lost node. FSDP_SLURM_ROUNDS=N repeats all of it, FSDP_SLURM_CASES="requeue preemption" runs some.
# Shares: Slurm
# Long
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
source tests/support/shell/slurm.sh
export PATH=$BIN:$PATH
if missing=$(slurm_missing); then
  skip "jobs under a real Slurm" "$missing is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit 0
fi
at_exit() {
  [ ! -s "$WORK/munge/pid" ] || kill "$(cat "$WORK/munge/pid")"
  slurm_down
}
slurm_up 127.0.0. linuxproc 4 "PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=30
PartitionName=hi Nodes=ALL PriorityTier=9 PreemptMode=OFF" || { skip "jobs under a real Slurm" "$slurm_why"; exit 0; }
cd "$WORK" || exit 1
CONFIGS=$SOURCE/configs/slurm

# job_file NAME: as tiny_job, in a file of that name, but neither the run nor the workers are named.
job_file() {
  tiny_job "$1.yaml"
  sed -i "s/{name: tiny, dir/{dir/; s/{nproc_per_node: 2, max/{threads: 1, max/" "$1.yaml"
}
job_file train
sed 's/steps: 20,/steps: 1000000,/; s/every: 5/every: 500000/' train.yaml > long.yaml

batch() { timeout 1000 sbatch --parsable -o "$WORK/%x.out" "$@"; }     # its number
state() { scontrol -o show job "$1" 2> /dev/null | sed -n 's/.*JobState=\([A-Z_]*\) .*/\1/p' | tail -n 1; }
is_in() { [ "$(state "$1")" = "$2" ]; }
has_ended() { case $(state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | PREEMPTED | NODE_FAIL) ;; *) return 1 ;; esac; }
code() { scontrol -o show job "$1" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p' | tail -n 1; }
completes() { wait_until 60 has_ended "$1" && is_in "$1" COMPLETED; }
steps() { sed -n 's/.*"step": *\([0-9]*\),.*/\1/p' "runs/$1/metrics.jsonl"; }
# once NAME: the steps that were logged are 1, 2, ... N, each once.
once() { [ "$(steps "$1")" = "$(seq "$(steps "$1" | tail -n 1)")" ]; }
ranks() { sed -n 's/.*"generation": *'"${2:-0}"',.*"event": *"spawn".*\|.*"event": *"spawn".*"generation": *'"${2:-0}"'[,}].*/x/p' "runs/$1/events.jsonl" | grep -c x; }
# has_variable PID NAME=VALUE: does the process have that variable?
has_variable() { { tr '\0' '\n' < "/proc/$1/environ"; } 2> /dev/null | grep -qx "$2"; }
# processes NAMES: those of the jobs of this cluster
processes() { local pid; for pid in $(pgrep -x "$1"); do ! has_variable "$pid" "SLURM_CONF=$SLURM_CONF" || echo "$pid"; done; }
no_process() { [ -z "$(processes 'fsdprun|fsdprun-agent|fsdp-train')" ]; }
nothing_left() {
  check "$1: no process is left" wait_until 30 no_process
  check_eq "$1: no secret is left" "" "$(find . -name '.secret-*')"
}
# shows NAME OUT: the end of an output, for a check that has failed
shows() { tail -n 8 "$1" | sed 's/^/# /'; }

zero_options() {
  check_status "four nodes, no option: the job completes" 0 timeout 1000 srun -Q -J zero -N4 --ntasks-per-node=1 fsdprun train.yaml || shows err
  check_eq "... as one world of four ranks" 4 "$(ranks zero)"
  check "... that does each step once" once zero
  check_eq "... 20 of them" 20 "$(steps zero | wc -l)"
  check_match "... with a secret" "hosts, at 127.0.0.1:2[0-9]{4}" "$(cat err)"
  check_eq "--dry-run names the variables, once a node" \
    "  name: zero # SLURM_JOB_NAME,  nnodes: 2 # SLURM_STEP_NUM_NODES,# --rdzv-backend c10d # SLURM_STEP_ID,# --save-on-signal # SLURM_JOB_ID," \
    "$(timeout 1000 srun -Q -J zero -N2 --ntasks-per-node=1 fsdprun --dry-run train.yaml | grep SLURM_ | grep -v NODELIST | sed 's/  *#/ #/' | LC_ALL=C sort -u | tr '\n' ,)"
  check_status "a program that fails: its status" 41 timeout 1000 srun -Q -N2 --ntasks-per-node=1 fsdprun --no-python sh -c 'exit 41'
  check_status "a job that is complete" 0 timeout 1000 srun -Q -J zero -N4 --ntasks-per-node=1 fsdprun train.yaml
  check_status "one node of two says another number of nodes" 2 timeout 1000 srun -Q -N2 --ntasks-per-node=1 fsdprun --nnodes 3 train.yaml
  check_match "... and is refused" "--nnodes asks for 3 nodes, and this Slurm step has 2" "$(cat err)"
  nothing_left "no option"
}

# With a munge that is there: a munged of our own, which programs on PATH lead to.
sealed() {
  local step
  command -v munged > /dev/null || { skip "a secret that munge seals" "munged is not installed (Debian: munge)"; return; }
  mkdir -p munge/bin
  chmod 755 "$WORK" munge
  (umask 077; head -c 128 /dev/urandom > munge/key)
  for program in munge unmunge; do
    printf '#!/bin/sh\nexec %s --socket=%s "$@"\n' "$(command -v $program)" "$WORK/munge/socket" > munge/bin/$program
    chmod 755 munge/bin/$program
  done
  munged --force --socket="$WORK/munge/socket" --key-file="$WORK/munge/key" --pid-file="$WORK/munge/pid" --log-file="$WORK/munge/log" \
    --seed-file="$WORK/munge/seed" > munge/out 2>&1 || { skip "a secret that munge seals" "munged does not start: $(tail -n 1 munge/out)"; return; }
  PATH=$WORK/munge/bin:$PATH timeout 1000 srun -Q -J sealed -N2 --ntasks-per-node=1 fsdprun long.yaml > sealed.out 2>&1 &
  step=$!
  check "two nodes train with a secret" wait_until 60 has_logged runs/sealed 0 3 || shows sealed.out
  check_match "... that munge has sealed" "^MUNGE:" "$(cat runs/.secret-*-sealed)"
  scancel -s USR1 "$(squeue -h -n sealed -o %i)"
  wait "$step"
  check_eq "... and save when they are asked to: 77" 77 $? || shows sealed.out
  kill "$(cat munge/pid)"
  rm -rf munge
  nothing_left sealed
}

task_a_gpu() {
  check_status "three tasks on each of two nodes" 0 timeout 1000 srun -Q -J gpu -N2 --ntasks-per-node=3 fsdprun train.yaml || shows err
  check_eq "... are six ranks of one world" 6 "$(ranks gpu)"
  check "... that does each step once" once gpu
  check_eq "each task ends with the status of the first" "6 41" \
    "$(timeout 1000 srun -Q -N2 --ntasks-per-node=3 sh -c 'fsdprun --no-python sh -c "exit 41"; echo $?' 2> err | sort | uniq -c | sed 's/^ *//')"
  check_eq "a step may run one job after another" "4 0-41" \
    "$(timeout 1000 srun -Q -N2 --ntasks-per-node=2 sh -c 'fsdprun --no-python true; a=$?; fsdprun --no-python sh -c "exit 41"; echo $a-$?' 2> err | sort | uniq -c | sed 's/^ *//')"
  check_eq "if the first is killed, so are the others" "3 137" \
    "$(timeout 1000 srun -Q -N1 -n3 sh -c 'fsdprun --no-python sh -c "kill -9 \$(ps -o ppid= \$PPID)"; echo $?' 2> err | sort | uniq -c | sed 's/^ *//')"
  nothing_left "a task a GPU"
}

array_and_heterogeneous() {
  local job task
  printf '#!/bin/sh\nsrun fsdprun train.yaml\n' > array.sh
  job=$(batch -J array --array=1-2 -N2 --ntasks-per-node=1 array.sh)
  for task in 1 2; do
    check "task $task of an array completes" completes "${job}_$task"
    check "... in a run of its own" once "array-$task"
  done
  printf '#!/bin/sh\n#SBATCH -N1 --ntasks-per-node=1\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=1\nsrun --het-group=0,1 fsdprun train.yaml\n' > het.sh
  job=$(batch -J het het.sh)
  check "a heterogeneous step completes" completes "$job" || shows het.out
  check_eq "... as one world" 3 "$(ranks het)"
  nothing_left "array and heterogeneous"
}

wrong_use() {
  local job
  printf '#!/bin/sh\nfsdprun train.yaml\n' > wrong.sh
  job=$(batch -J wrong -N2 wrong.sh)
  check "a batch script without srun ends" wait_until 60 has_ended "$job"
  check_eq "... with 2" 2 "$(code "$job")"
  check_eq "... and the line to type" "fsdprun: this Slurm job has 2 nodes, and only this one would be used; start it by srun: srun --ntasks-per-node=1 fsdprun ... train.yaml (or add --standalone, for this node alone)" "$(cat wrong.out)"
  check "... and nothing is made" [ ! -e runs/wrong ]
}

is_after() { [ "$(date +%s)" -gt "$(($1 + 1))" ]; }
# resumes NAME JOB: it was saved and is in the queue again; the next start resumes, and completes.
resumes() {
  check "$1: the job is in the queue again" wait_until 60 is_in "$2" PENDING || shows "$1.out"
  check_eq "$1: with one checkpoint" 1 "$(ls "runs/$1/checkpoints" | grep -c '^step-')"
  sed -i "s/steps: [0-9]*/steps: $(($(steps "$1" | tail -n 1) + 5))/" "$1.yaml"
  # Slurm holds the job back for two minutes. A node refuses a start in the second in which it has killed the last.
  wait_until 60 no_steps
  wait_until 10 is_after "$(date +%s)"
  wait_until 60 scontrol update jobid="$2" starttime=now
  check "$1: the next start completes it" completes "$2" || { shows "$1.out"; scontrol -o show job "$2" | sed 's/^/# /'; }
  check_match "$1: by resuming" "resuming after step" "$(cat "$1.out")"
  check "$1: no step is trained twice" once "$1"
  nothing_left "$1"
}

requeue() {
  local job
  cp long.yaml "requeue.yaml"
  job=$(batch -J requeue --time=1 --signal=USR1@50 -N2 "$CONFIGS/requeue.sbatch" requeue.yaml)
  check "requeue.sbatch trains" wait_until 60 has_logged runs/requeue 0 3
  resumes requeue "$job"

  cp long.yaml disallowed.yaml
  job=$(batch -J disallowed --no-requeue -N2 "$CONFIGS/requeue.sbatch" disallowed.yaml)
  check "a job that must not be requeued trains" wait_until 60 has_logged runs/disallowed 0 3
  scancel -s USR1 "$job"
  check "... ends" wait_until 60 has_ended "$job"
  check_eq "... with 77, saved" "77 1" "$(code "$job") $(ls runs/disallowed/checkpoints | grep -c '^step-')"
  check_match "... and Slurm's reason" "^fsdprun: not requeued: scontrol requeue $job: " "$(cat disallowed.out)"

  cp long.yaml cancelled.yaml
  job=$(batch -J cancelled -N2 "$CONFIGS/requeue.sbatch" cancelled.yaml)
  check "a job that is cancelled trains" wait_until 60 has_logged runs/cancelled 0 3
  scancel "$job"
  check "... ends for good" wait_until 60 is_in "$job" CANCELLED
  check "... saved" wait_until 60 ls runs/cancelled/checkpoints/step-*
  nothing_left "cancelled"
}

preemption() {
  local job
  cp long.yaml preempted.yaml
  job=$(batch -J preempted -p low -N3 "$CONFIGS/requeue.sbatch" preempted.yaml)
  check "a job of low priority trains" wait_until 60 has_logged runs/preempted 0 3
  check_status "one of high priority takes its nodes" 0 timeout 1000 srun -Q -p hi -N4 -n4 --exclusive true
  resumes preempted "$job"
}

# lose NODE: what a host that loses its power leaves: neither slurmd nor anything that it has started.
lose() {
  local pid pids=("$(cat "$slurm_dir/$1.pid")")
  for pid in $(processes 'fsdprun|fsdprun-agent|fsdp-train'); do
    has_variable "$pid" "SLURMD_NODENAME=$1" && pids+=("$pid" "$(ps -o ppid= -p "$pid" | tr -d ' ')")
  done
  kill -9 $(stepds "${pids[@]}") "${pids[@]}" 2> /dev/null
  scontrol update nodename="$1" state=down reason=lost
}
# stepds PID...: those that are slurmstepd
stepds() { local pid; for pid; do [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = slurmstepd ] && echo "$pid"; done; }
is_back() { [ "$(sinfo -h -N -p all -n "$1" -o %t)" = idle ]; }

node_loss() {
  local job lost=127.0.0.$1 name=$2
  sed 's/steps: 20,/steps: 1000000,/; s/every: 5/every: 50/' train.yaml > "$name.yaml"
  job=$(batch -J "$name" -N4 "$CONFIGS/requeue.sbatch" "$name.yaml")
  check "$name: four nodes train" wait_until 60 has_logged "runs/$name" 0 120
  lose "$lost"
  check "$name: three go on" wait_until 60 has_logged "runs/$name" 1 120 || shows "$name.out"
  check_eq "$name: as three ranks" 3 "$(ranks "$name" 1)"
  check "$name: no step up to the last checkpoint is trained twice" \
    awk -F'[:,]' '{ for (i = 1; i < NF; i++) { if ($i ~ /"step"/) s = $(i + 1) + 0; if ($i ~ /"generation"/) g = $(i + 1) + 0 }
      if (g > last) { if (s != before - (before % 50) + 1 && s != before - (before % 50) - 49) { print "generation " g " begins with step " s " after " before; exit 1 } last = g }
      else if (s != before + 1) { print s " after " before; exit 1 } before = s }' "runs/$name/metrics.jsonl"
  scancel -s TERM "$job" # the batch script is not signalled: srun's status is its
  check "$name: it ends" wait_until 60 has_ended "$job"
  check_eq "$name: saved, with 77" 77 "$(code "$job")" || shows "$name.out"
  rm -f "$slurm_dir/$lost.pid"
  slurmd -N "$lost" && scontrol update nodename="$lost" state=resume
  check "$name: the node is back" wait_until 60 is_back "$lost"
  nothing_left "$name"
}

examples() {
  local job
  job=$(batch -J example -N4 "$CONFIGS/train.sbatch" train.yaml)
  check "train.sbatch completes" completes "$job" || shows example.out
  check "... each step once" once example
  cat > program.py << 'END'
import os
try:
    import torch
    torch.distributed.init_process_group("gloo")
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    total = int(total)
    torch.distributed.destroy_process_group() # a rank that exits with it open may abort where its peers are gone
except ImportError: # the store answers, at least
    import socket
    socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
    total = int(os.environ["WORLD_SIZE"])
print(f"rank {os.environ['RANK']} of {total}\n", end="") # one write: two ranks of a node share their output
END
  job=$(PYTHON_EXEC=${FSDP_TEST_PYTHON:-} batch -J torch --ntasks-per-node=2 -N2 "$CONFIGS/torch.sbatch" program.py)
  check "torch.sbatch completes" completes "$job" || shows torch.out
  check_eq "... as one world" "rank 0 of 4,rank 1 of 4,rank 2 of 4,rank 3 of 4," "$(grep '^rank ' torch.out | sort | tr '\n' ,)" || shows torch.out
  nothing_left "examples"
}

cases=(zero_options sealed task_a_gpu array_and_heterogeneous wrong_use requeue preemption "node_loss 4 lost-last" "node_loss 1 lost-first" examples)
[ -z "${FSDP_SLURM_CASES:-}" ] || cases=($FSDP_SLURM_CASES)
for round in $(seq "${FSDP_SLURM_ROUNDS:-1}"); do
  rm -rf runs ./*.out
  for case in "${cases[@]}"; do $case; done
done
