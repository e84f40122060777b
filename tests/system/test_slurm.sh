# The zero-option runs under a real Slurm of four nodes: jobs, a task a GPU, arrays, heterogeneous steps, requeue,
# preemption, the time limit, lost nodes and lost daemons. FSDP_SLURM_ROUNDS=N repeats all of it (the nightly part slurm:
# five times), FSDP_SLURM_CASES="requeue preemption" runs some. A whole nightly run fails where there is no Slurm.
# Shares: Slurm
# Long
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
source tests/support/shell/slurm.sh
export PATH=$BIN:$PATH
if missing=$(slurm_missing); then
  slurm_cannot "jobs under a real Slurm" "$missing is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit
fi
at_exit() {
  [ ! -s "$WORK/munge/pid" ] || kill "$(cat "$WORK/munge/pid")"
  slurm_down
}
slurm_up 127.0.0. linuxproc 4 "PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=30
PartitionName=hi Nodes=ALL PriorityTier=9 PreemptMode=OFF" 4 || { slurm_cannot "jobs under a real Slurm" "$slurm_why"; exit; }
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
# once_saved NAME EVERY: the steps that were logged follow each other. Where one is trained again, that begins after a
# checkpoint, and no checkpoint that was there by then has a later step.
once_saved() {
  awk -v every="$2" '
    function number(key) { return match($0, "\"" key "\": *[0-9.]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
    FILENAME ~ /events/ { if (/"event": *"checkpoint",/) { at[++n] = number("time"); saved[n] = number("step") } next }
    { step = number("step"); newest = 0
      if (step > before && step != before + 1) { print step " after " before; bad = 1 }
      if (step <= before) for (i = 1; i <= n; i++) if (at[i] < number("time") && saved[i] > newest) newest = saved[i]
      if (step <= before && (step <= newest || (step - 1) % every)) { print step " after " before ", with a checkpoint of " newest; bad = 1 }
      before = step }
    END { exit bad || n == 0 || before == 0 }' "runs/$1/events.jsonl" "runs/$1/metrics.jsonl"
}
# has_saved NAME STEPS: has its first start logged so many, and published a checkpoint?
has_saved() { has_logged "runs/$1" 0 "$2" && grep -q '"event": *"checkpoint",' "runs/$1/events.jsonl"; }
# once NAME: the steps that were logged are 1, 2, ... N, each once.
once() { [ "$(steps "$1")" = "$(seq "$(steps "$1" | tail -n 1)")" ]; }
ranks() { sed -n 's/.*"generation": *'"${2:-0}"',.*"event": *"spawn".*\|.*"event": *"spawn".*"generation": *'"${2:-0}"'[,}].*/x/p' "runs/$1/events.jsonl" | grep -c x; }
# has_variable PID NAME=VALUE: does the process have that variable?
has_variable() { { tr '\0' '\n' < "/proc/$1/environ"; } 2> /dev/null | grep -qx "$2"; }
# processes NAMES: those of the jobs of this cluster
processes() { local pid; for pid in $(pgrep -x "$1"); do ! has_variable "$pid" "SLURM_CONF=$SLURM_CONF" || echo "$pid"; done; }
# shown_anywhere TEXT: the processes of jobs whose arguments or environment have it, and the files but that of the secret
shown_anywhere() {
  local pid
  for pid in $(processes 'fsdprun|fsdprun-agent|fsdp-train|srun'); do ! grep -qF "$1" "/proc/$pid/cmdline" "/proc/$pid/environ" || echo "$pid"; done
  grep -rlF "$1" . | grep -v '/\.secret-'
}
# of_jobs: every process that a job of this cluster has started, whatever its name. The daemons and this script have the
# variables of no job, and a slurmstepd those of its slurmd.
of_jobs() {
  local environ pid
  for environ in $(grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2> /dev/null); do
    pid=${environ//[!0-9]/}
    ! grep -qz '^SLURM_JOB_ID=' "$environ" 2> /dev/null || echo "$pid $(cat "/proc/$pid/comm" 2> /dev/null)"
  done
}
no_process() { ! of_jobs | grep .; }
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
  command -v munged > /dev/null || { slurm_cannot "a secret that munge seals" "munged is not installed (Debian: munge)"; return; }
  mkdir -p munge/bin
  chmod 755 "$WORK" munge
  (umask 077; head -c 128 /dev/urandom > munge/key)
  for program in munge unmunge; do
    printf '#!/bin/sh\nexec %s --socket=%s "$@"\n' "$(command -v $program)" "$WORK/munge/socket" > munge/bin/$program
    chmod 755 munge/bin/$program
  done
  munged --force --socket="$WORK/munge/socket" --key-file="$WORK/munge/key" --pid-file="$WORK/munge/pid" --log-file="$WORK/munge/log" \
    --seed-file="$WORK/munge/seed" > munge/out 2>&1 || { slurm_cannot "a secret that munge seals" "munged does not start: $(tail -n 1 munge/out)"; return; }
  PATH=$WORK/munge/bin:$PATH timeout 1000 srun -Q -J sealed -N2 --ntasks-per-node=1 fsdprun long.yaml > sealed.out 2>&1 &
  step=$!
  check "two nodes train with a secret" wait_until 60 has_logged runs/sealed 0 3 || shows sealed.out
  check_match "... that munge has sealed" "^MUNGE:" "$(cat runs/.secret-*-sealed)"
  scancel -s USR1 "$(squeue -h -n sealed -o %i)"
  wait "$step"
  check_eq "... and save when they are asked to: 77" 77 $? || shows sealed.out
  kill "$(cat munge/pid)"
  wait_until 20 [ ! -e munge/pid ]
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

gpus() {
  check_eq "--gpus-per-node: a rank for each GPU" "2 0 of 3 of 6 sees 0,1,2,2 1 of 3 of 6 sees 0,1,2,2 2 of 3 of 6 sees 0,1,2," \
    "$(timeout 1000 srun -Q -N2 --ntasks-per-node=1 --gpus-per-node=3 fsdprun --no-python \
      sh -c 'echo "$LOCAL_RANK of $LOCAL_WORLD_SIZE of $WORLD_SIZE sees $CUDA_VISIBLE_DEVICES"' 2> err | sort | uniq -c | sed 's/^ *//' | tr '\n' ,)" || shows err
  check_status "... of a job, too" 0 timeout 1000 srun -Q -J gpus -N2 --ntasks-per-node=1 --gpus-per-node=2 fsdprun train.yaml || shows err
  check_eq "... as one world" 4 "$(ranks gpus)"
  check_match "... by this variable" "SLURM_GPUS_ON_NODE" \
    "$(timeout 1000 srun -Q -N1 --gpus-per-node=4 fsdprun --dry-run train.yaml | grep 'nproc_per_node: 4')"
  nothing_left gpus
}

array_and_heterogeneous() {
  local job task
  printf '#!/bin/sh\nsrun fsdprun train.yaml\n' > array.sh
  job=$(batch -J array --array=1-2 -N2 --ntasks-per-node=1 array.sh)
  for task in 1 2; do
    check "task $task of an array completes" completes "${job}_$task"
    check "... in a run of its own" once "array-$task"
  done
  printf '#!/bin/sh\n#SBATCH -N1 --ntasks-per-node=1\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=1\nsrun --het-group=0,1 fsdprun train.yaml\nsrun --het-group=0,1 fsdprun --no-python sh -c "exit 41"\n' > het.sh
  job=$(batch -J het het.sh)
  check "a heterogeneous job ends" wait_until 60 has_ended "$job" || shows het.out
  check_eq "a heterogeneous step completes, as one world" "3 20" "$(ranks het) $(steps het | wc -l)" || shows het.out
  check "... that does each step once" once het
  check_eq "... and one that fails ends with its status" "FAILED 41" "$(state "$job") $(code "$job")" || shows het.out
  nothing_left "array and heterogeneous"
}

# A task of an array, with a task for each rank, goes back to the queue; the other one goes on.
array_requeue() {
  local job
  cp long.yaml rows.yaml
  job=$(batch -J rows --array=1-2 -N2 --ntasks-per-node=2 "$CONFIGS/requeue.sbatch" rows.yaml)
  check "task 1 of an array trains" wait_until 60 has_logged runs/rows-1 0 3
  check "and so does task 2" wait_until 60 has_logged runs/rows-2 0 3
  scancel -s USR1 "${job}_1"
  check "rows: the task is in the queue again" wait_until 60 is_in "${job}_1" PENDING
  check_eq "rows: the other one runs" RUNNING "$(state "${job}_2")"
  scancel -s TERM "${job}_2"
  check "rows: it saves too, and ends" wait_until 60 has_ended "${job}_2"
  check_eq "rows: with 77" 77 "$(code "${job}_2")"
  few_more rows-1 rows
  starts_again rows-1 "${job}_1" rows
  check "rows-1: no step is trained twice" once rows-1
}

wrong_use() {
  local job
  printf '#!/bin/sh\nfsdprun train.yaml\n' > wrong.sh
  job=$(batch -J wrong -N2 wrong.sh)
  check "a batch script without srun ends" wait_until 60 has_ended "$job"
  check_eq "... with 2" 2 "$(code "$job")"
  check_eq "... and the line to type" "fsdprun: this Slurm job has 2 nodes, and only this one would be used; start it by srun: srun --ntasks-per-node=1 fsdprun ... train.yaml (or add --standalone, for this node alone)" "$(cat wrong.out)"
  check "... and nothing is made" [ ! -e runs/wrong ]
  check_status "the same in a shell of salloc" 2 timeout 1000 salloc -Q -N2 fsdprun train.yaml
  check_match "... with the line to type" "start it by srun: srun --ntasks-per-node=1 fsdprun" "$(cat err)"
  check_status "... where --standalone says that one node is meant" 0 timeout 1000 salloc -Q -J alone -N2 fsdprun --standalone train.yaml
  check_status "tasks of a step that runs no fsdprun of their own" 2 timeout 1000 srun -Q -N2 --ntasks-per-node=1 fsdprun --nnodes 2 --rdzv-backend static --node-rank 2 train.yaml
  nothing_left "wrong use"
}

is_after() { [ "$(date +%s)" -gt "$(($1 + 1))" ]; }
# few_more RUN NAME: the job file of NAME ends five steps after what the run has done.
few_more() { sed -i "s/steps: [0-9]*/steps: $(($(steps "$1" | tail -n 1) + 5))/" "$2.yaml"; }
# starts_again RUN JOB NAME: a job that is in the queue again starts, resumes, and completes.
starts_again() {
  # Slurm holds the job back for two minutes. A node refuses a start in the second in which it has killed the last.
  wait_until 60 no_steps
  wait_until 10 is_after "$(date +%s)"
  wait_until 60 scontrol update jobid="$2" starttime=now
  check "$1: the next start completes it" completes "$2" || { shows "$3.out"; scontrol -o show job "$2" | sed 's/^/# /'; }
  check_match "$1: by resuming" "resuming after step" "$(cat "$3.out")"
  nothing_left "$1"
}
# resumes NAME JOB: it was saved and is in the queue again; the next start resumes, and completes.
resumes() {
  check "$1: the job is in the queue again" wait_until 60 is_in "$2" PENDING || shows "$1.out"
  check_eq "$1: with one checkpoint" 1 "$(ls "runs/$1/checkpoints" | grep -c '^step-')"
  few_more "$1" "$1"
  starts_again "$1" "$2" "$1"
  check "$1: no step is trained twice" once "$1"
}

requeue() {
  local job
  cp long.yaml "requeue.yaml"
  job=$(batch -J requeue --time=1 --signal=USR1@50 -N4 "$CONFIGS/requeue.sbatch" requeue.yaml)
  check "requeue.sbatch trains" wait_until 60 has_logged runs/requeue 0 3
  check_eq "... with a secret that only its user reads, without munge" "600 64" "$(stat -c '%a %s' runs/.secret-*-requeue)"
  check_match "... whose processes would be found if one stayed" "fsdp-train" "$(of_jobs)"
  check_eq "... and that no process shows" "" "$(shown_anywhere "$(cat runs/.secret-*-requeue)")"
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

# A save that is not done in time: the job is requeued all the same, and resumes from the checkpoint before.
requeue_unsaved() {
  local job
  sed 's/steps: 20,/steps: 1000000,/; s/every: 5/every: 50/' train.yaml > unsaved.yaml
  job=$(batch -J unsaved -N2 "$CONFIGS/requeue.sbatch" unsaved.yaml)
  check "unsaved: two nodes train" wait_until 60 has_saved unsaved 120
  kill -STOP "$(pid_of runs/unsaved 0 1)"
  scancel -s USR1 "$job"
  check "unsaved: the job is in the queue again" wait_until 60 is_in "$job" PENDING || shows unsaved.out
  few_more unsaved unsaved
  starts_again unsaved "$job" unsaved
  check_match "unsaved: from a checkpoint of each fiftieth step" "resuming after step [0-9]*[05]0\\b" "$(cat unsaved.out)"
  check "unsaved: no step up to the last checkpoint is trained twice" once_saved unsaved 50
}

preemption() {
  local job
  cp long.yaml preempted.yaml
  job=$(batch -J preempted -p low -N3 "$CONFIGS/requeue.sbatch" preempted.yaml)
  check "a job of low priority trains" wait_until 60 has_logged runs/preempted 0 3
  check_status "one of high priority takes its nodes" 0 timeout 1000 srun -Q -p hi -N4 -n4 --exclusive true
  resumes preempted "$job"

  timeout 1000 srun -Q -J direct -p low -N2 --ntasks-per-node=1 fsdprun long.yaml > direct.out 2>&1 &
  job=$!
  check "a step without a batch script trains" wait_until 60 has_logged runs/direct 0 3 || shows direct.out
  check_status "... until it is preempted" 0 timeout 1000 srun -Q -p hi -N4 -n4 --exclusive true
  wait "$job"
  check_eq "... saves, and ends with 77, as there is nothing to requeue" "77 1" "$? $(ls runs/direct/checkpoints | grep -c '^step-')" || shows direct.out
  nothing_left direct
}

# Where scontrol is not there (in a container, say), the status lets Slurm decide.
requeue_exit() {
  local job
  echo RequeueExit=77 >> "$SLURM_CONF"
  scontrol reconfigure
  mkdir -p without
  printf '#!/bin/sh\necho "no scontrol here" >&2\nexit 1\n' > without/scontrol
  chmod +x without/scontrol
  cp long.yaml exit77.yaml
  job=$(PATH=$WORK/without:$PATH batch -J exit77 -N2 "$CONFIGS/requeue.sbatch" exit77.yaml)
  check "a job that cannot reach scontrol trains" wait_until 60 has_logged runs/exit77 0 3
  scancel -s USR1 "$job"
  resumes exit77 "$job"
  check_match "exit77: it has said why it does not ask for that itself" "^fsdprun: not requeued: scontrol requeue $job: no scontrol here" "$(cat exit77.out)"
  sed -i /RequeueExit/d "$SLURM_CONF"
  scontrol reconfigure
}

# Without a signal before it, the time limit sends TERM: the job saves, and is not requeued.
time_limit() {
  local job
  cp long.yaml limit.yaml
  job=$(batch -J limit --time=1 --signal=USR2@0 -N1 "$CONFIGS/requeue.sbatch" limit.yaml)
  check "a job that reaches its time limit ends for good" wait_until 180 is_in "$job" TIMEOUT
  check_eq "... saved" 1 "$(ls runs/limit/checkpoints | grep -c '^step-')" || shows limit.out
  nothing_left limit
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

is_dead() { ! kill -0 "$1" 2> /dev/null; }
# come_back NODE
come_back() {
  rm -f "$slurm_dir/$1.pid"
  slurmd -N "$1" && scontrol update nodename="$1" state=resume
  check "$1 is back" wait_until 60 is_back "$1"
}

# node_loss NUMBER NAME TASKS: with so many tasks on each of four nodes
node_loss() {
  local job lost=127.0.0.$1 name=$2
  sed 's/steps: 20, global_batch: 12/steps: 1000000, global_batch: 24/; s/every: 5/every: 50/' train.yaml > "$name.yaml"
  job=$(batch -J "$name" -N4 --ntasks-per-node="$3" "$CONFIGS/requeue.sbatch" "$name.yaml")
  check "$name: four nodes train" wait_until 60 has_saved "$name" 120
  lose "$lost"
  check "$name: three go on" wait_until 60 has_logged "runs/$name" 1 120 || shows "$name.out"
  check_eq "$name: as the ranks of three nodes" $((3 * $3)) "$(ranks "$name" 1)"
  check "$name: no step up to the last checkpoint is trained twice" once_saved "$name" 50
  scancel -s TERM "$job" # the batch script is not signalled: srun's status is its
  check "$name: it ends" wait_until 60 has_ended "$job"
  check_eq "$name: saved, with 77" 77 "$(code "$job")" || shows "$name.out"
  come_back "$lost"
  nothing_left "$name"
}

# Without --no-kill Slurm ends the job, and puts it into its queue again.
node_fails() {
  local job
  sed 's/steps: 20,/steps: 1000000,/; s/every: 5/every: 50/' train.yaml > fails.yaml
  job=$(batch -J fails -N3 --requeue --open-mode=append "$CONFIGS/train.sbatch" fails.yaml)
  check "fails: three nodes train" wait_until 60 has_saved fails 120
  lose 127.0.0.2
  check "fails: the job is in the queue again" wait_until 60 is_in "$job" PENDING || shows fails.out
  come_back 127.0.0.2
  few_more fails fails
  starts_again fails "$job" fails
  check "fails: no step up to the last checkpoint is trained twice" once_saved fails 50
}

# A slurmd that is killed alone takes nothing of the job with it.
daemon_loss() {
  local job lost pids=()
  cp long.yaml daemons.yaml
  job=$(batch -J daemons -N2 "$CONFIGS/train.sbatch" daemons.yaml)
  check "daemons: two nodes train" wait_until 60 has_logged runs/daemons 0 3
  for lost in 127.0.0.1 127.0.0.2; do pids+=("$(cat "$slurm_dir/$lost.pid")"); done
  kill -9 "${pids[@]}"
  wait_until 20 is_dead "${pids[1]}"
  check "daemons: without their slurmd they go on" wait_until 60 has_logged runs/daemons 0 $(($(logged_lines runs/daemons 0) + 100))
  for lost in 127.0.0.1 127.0.0.2; do rm -f "$slurm_dir/$lost.pid"; slurmd -N $lost; done
  wait_until 60 scancel -s TERM "$job"
  check "daemons: and are stopped by Slurm once it is back" wait_until 60 has_ended "$job"
  check_eq "daemons: saved, with 77, in one generation" "77 1 0" \
    "$(code "$job") $(ls runs/daemons/checkpoints | grep -c '^step-') $(logged_lines runs/daemons 1)" || shows daemons.out
  check "daemons: each step once" once daemons
  wait_until 60 all_idle
  nothing_left daemons
}

examples() {
  local job with by i=0
  job=$(batch -J example -N4 "$CONFIGS/train.sbatch" train.yaml)
  check "train.sbatch completes" completes "$job" || shows example.out
  check "... each step once" once example
  cat > program.py << 'END'
import os, sys
total = os.environ["WORLD_SIZE"]
if sys.argv[1] == "torch":
    import torch
    torch.distributed.init_process_group("gloo")
    sum = torch.ones(1)
    torch.distributed.all_reduce(sum)
    total = f"{int(sum)} by an all-reduce"
    torch.distributed.destroy_process_group() # a rank that exits with it open may abort where its peers are gone
else: # the store answers, at least
    import socket
    socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
print(f"rank {os.environ['RANK']} of {total} on {os.environ['SLURMD_NODENAME']}\n", end="") # one write: two ranks of a node share their output
END
  with=torch by=" by an all-reduce"
  [ -n "${FSDP_TEST_PYTHON:-}" ] || { skip "torch.sbatch with PyTorch" "FSDP_TEST_PYTHON names no Python"; with=store by=; }
  job=$(PYTHON_EXEC=${FSDP_TEST_PYTHON:-} batch -J torch --ntasks-per-node=2 -n5 -N4 "$CONFIGS/torch.sbatch" program.py $with)
  check "torch.sbatch completes" completes "$job" || shows torch.out
  check_eq "... as one world of four nodes" "$(for node in 1 1 2 3 4; do echo "rank $((i++)) of 5$by on 127.0.0.$node"; done)" "$(grep '^rank ' torch.out | sort)" || shows torch.out
  echo 'raise SystemExit(41)' > fails.py
  job=$(PYTHON_EXEC=${FSDP_TEST_PYTHON:-} batch -J torch-fails --ntasks-per-node=2 -N2 "$CONFIGS/torch.sbatch" fails.py)
  check "with a program that fails it ends" wait_until 60 has_ended "$job"
  check_eq "... after three restarts, and Slurm has the program's status" "FAILED 41" "$(state "$job") $(code "$job")"
  check_match "... whose line comes last" "exited with status 41" "$(grep '^fsdprun' torch-fails.out | tail -n 1)"
  nothing_left "examples"
}

# row CHECK FILE: "STATE VALUE" of a check in a report of doctor, which other lines may surround
row() { sed -n '/^\[/p' "$2" | sed 's/}, {/}\n{/g' | sed -n "s/.*\"check\": \"$1\", \"state\": \"\([a-z]*\)\", \"value\": \"\([^\"]*\)\".*/\1 \2/p"; }

doctor() {
  local job
  mkdir -p runs
  timeout 1000 srun -Q -N3 --ntasks-per-node=1 fsdprun doctor --json --run-dir runs/doctor > nodes.out 2> nodes.err
  check "doctor: the output of srun is one document" "$TOY/json_check" nodes.out || shows nodes.err
  check_eq "doctor: the nodes of a step need no option; each is measured" 3 "$(row nodes.bandwidth nodes.out | grep -c '^ok median')" || shows nodes.err
  check_eq "... by name" 3 "$(grep -o '"check": "nodes.clock"[^}]*"node": "[^"]*' nodes.out | sort -u | wc -l)"
  check_eq "... with one run directory" 2 "$(row nodes.rundir nodes.out | grep -c "^ok $WORK/runs is the directory of")"
  check_eq "... and their version" 3 "$(row nodes.version nodes.out | grep -c ^ok)"
  timeout 1000 srun -Q -N2 --ntasks-per-node=3 fsdprun doctor train.yaml > tasks.out 2> tasks.err
  check_eq "doctor: of several tasks a node one looks, and one prints for a person" "2 1" \
    "$(grep -c 'ok    nodes.bandwidth  *median' tasks.out) $(grep -c ' ok, .* fail$' tasks.out)" || shows tasks.err
  printf '#!/bin/sh\nfsdprun doctor --json\nfsdprun doctor --standalone\n' > doctor.sh
  job=$(batch -J doctor -N2 doctor.sh)
  wait_until 60 has_ended "$job"
  check_eq "doctor: in an allocation, without srun, it says that it sees one node" "warn 2 are wanted, and only this one was looked at" "$(row nodes doctor.out)"
  check_match "... and how to look at all" '"advice": "start it by srun: srun --ntasks-per-node=1 fsdprun doctor"' "$(cat doctor.out)"
  check_eq "... --standalone means this one" 0 "$(grep -c '^  warn  nodes ' doctor.out)"
  check "doctor makes no run directory" [ ! -e runs/doctor ]
  nothing_left doctor
}

lost_last() { node_loss 4 lost-last 1; }
lost_first() { node_loss 1 lost-first 2; }

rounds=${FSDP_SLURM_ROUNDS:-1}
cases=(zero_options sealed task_a_gpu gpus array_and_heterogeneous array_requeue wrong_use requeue requeue_unsaved requeue_exit preemption lost_last lost_first node_fails
  daemon_loss examples doctor)
[ "$rounds" = 1 ] || cases+=(time_limit) # Slurm's shortest one is a minute
[ -z "${FSDP_SLURM_CASES:-}" ] || cases=($FSDP_SLURM_CASES)
for round in $(seq "$rounds"); do
  rm -rf runs ./*.out
  for case in "${cases[@]}"; do $case; done
done
