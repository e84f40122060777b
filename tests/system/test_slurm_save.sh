# --save-on-signal under a real Slurm: whichever processes of the step it signals, the job saves its step and
# ends with 77.
# proctrack/linuxproc signals all of them, proctrack/cgroup the main one of each task.
# Shares: Slurm
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
source tests/support/shell/slurm.sh
if missing=$(slurm_missing); then
  skip "a save under a real srun" "$missing is not installed (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
  exit 0
fi
at_exit() { slurm_down; }
tiny_job "$WORK/job.yaml"
printf 'a secret that is long enough to be one' > "$WORK/key"; chmod 600 "$WORK/key"

# start_job NAME NODES: under srun, in the background, once it has logged three steps. Saves at the end alone.
start_job() {
  local nodes=()
  [ "$2" = 1 ] || nodes=(--nnodes "$2" --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((slurm_base + 9))" --secret-file "$WORK/key")
  timeout 2000 srun -Q -J "$1" -N "$2" --ntasks-per-node=1 "$FSDPRUN" "${nodes[@]}" --nproc-per-node 2 --save-on-signal "$WORK/job.yaml" \
    --set run.name="$1" --set train.steps=1000000 --set checkpoint.every=500000 > "$WORK/$1.out" 2>&1 < /dev/null &
  step=$!
  wait_until 90 has_logged "$WORK/runs/$1" 0 3 || not_ok "$1: the job trains" "$(tail -n 5 "$WORK/$1.out")"
}
job_id() { squeue -h -n "$1" -o %i; }
saves() { ls "$WORK/runs/$1/checkpoints" 2> /dev/null | grep -c '^step-'; }
gone() { [ -z "$(job_id "$1")" ] && none_alive "$WORK/job.yaml --set run.name=$1 "; }

# saved_by SIGNAL NAME NODES
saved_by() {
  start_job "$2" "$3"
  scancel -s "$1" "$(job_id "$2")"
  wait "$step"
  check_eq "$2: 77, and one checkpoint" "77 1" "$? $(saves "$2")" || tail -n 5 "$WORK/$2.out" | sed 's/^/# /'
  check "$2: nothing is left" wait_until 30 gone "$2"
}

mark=t$$x # in the names of nodes: control groups have them, and belong to the machine
for proctrack in linuxproc cgroup; do
  if ! slurm_up "$mark" "$proctrack"; then
    skip "a save under srun, proctrack/$proctrack" "$slurm_why"
    continue
  fi
  for nodes in 1 2; do
    for signal in USR1 TERM; do
      saved_by $signal "$proctrack-$nodes-$signal" $nodes
    done
  done
  # TERM, CONT and, KillWait later, KILL.
  start_job "$proctrack-cancel" 2
  scancel "$(job_id "$proctrack-cancel")"
  wait "$step"
  check_eq "$proctrack: a job that is cancelled saves" 1 "$(saves "$proctrack-cancel")" || tail -n 5 "$WORK/$proctrack-cancel.out" | sed 's/^/# /'
  # A save that cannot be: it is given up before KillWait is over, and KILL comes.
  start_job "$proctrack-stuck" 1
  kill -STOP "$(pid_of "$WORK/runs/$proctrack-stuck" 0 1)"
  began=$SECONDS
  scancel -s USR1 "$(job_id "$proctrack-stuck")"
  wait "$step"
  check_eq "$proctrack: a save that does not come: 138" 138 $?
  check "$proctrack: it is not waited for beyond KillWait" [ $((SECONDS - began)) -lt 25 ]
  slurm_down
done
