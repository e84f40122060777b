# Every command and its messages in terminals of 80 and of 120 columns: no line of ours is longer. Tables and screens that
# are drawn again: test_watch.sh.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/terminal.sh
F=$BIN/fsdprun
export XDG_RUNTIME_DIR=$WORK/runtime TMPDIR=$WORK/temporary LC_ALL=C.UTF-8
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR"
unset COLUMNS LINES
cd "$WORK" || exit 1
at_exit() { "$F" stop holds; kill -KILL $(jobs -p); wait; } 2> /dev/null
command -v script > /dev/null || { skip "messages in a terminal" "no script(1)"; exit; }

# two jobs that run, with names that begin alike, and a run that has ended
tiny_job job.yaml
"$F" job.yaml > done.out 2>&1
long_name=a-name-that-is-far-too-long-for-a-terminal-of-eighty-columns-and-more-so-for-what-comes-after-it-in-the-line
"$F" job.yaml --set run.name=$long_name --set train.steps=10000000 --set checkpoint.every=0 > long.out 2>&1 & long=$!
"$F" --rdzv-id $long_name-2 "$TOY/toy" hang > up.out 2>&1 & program=$!
both_run() { [ "$("$F" ps -q | wc -l)" = 2 ] && [ -s "runs/$long_name/metrics.jsonl" ]; }
check "two jobs run" wait_until 30 both_run
printf 'train: {stps: 5}\nmodel: {dim: a}\n' > wrong.yaml
cp -r runs/tiny damaged
shard=$(ls -d damaged/checkpoints/*20/*.safetensors | head -n 1)
printf x | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 100)) conv=notrunc 2> /dev/null

# too_long COLUMNS: lines that are longer. Not ours to break: JSON, lines of ranks, and words that are longer by themselves.
too_long() { wider "$1" | awk '{ sub(/^ +/, "") } NF > 1 && !/^[{}"\t]/ && !/^\[rank /'; }
# says COLUMNS STATUS COMMAND...
says() {
  local columns=$1 status=$2; shift 2
  in_terminal "$columns" "$F $*" < /dev/null
  check_eq "fsdprun $* in $columns columns: none of its lines is longer" "status=$status" "$(too_long "$columns")$(frames | grep '^status=')"
}
pages=("ckpt ls" "ckpt show" "ckpt verify" "ckpt diff" "ckpt export" "ckpt import" "ckpt prune")
for page in ps status logs events stop restart top inspect plot doctor plan ckpt "${pages[@]}"; do "$F" help $page; done > drawn
{ "$F" --help; "$F" --help-all; "$F" version; } >> drawn
check_eq "pages of help fit 80 columns" "" "$(wider 80)"
# a run that was killed, an agent that has a GPU, and an fsdprun in a folder of its own
"$F" --rdzv-id $long_name-3 --log-dir logs "$TOY/toy" hang > killed.out 2>&1 & killed=$!
three_run() { [ "$("$F" ps -q | wc -l)" = 3 ]; }
check "a third job runs, and is killed" wait_until 30 three_run
kill -KILL $killed; wait $killed 2> /dev/null
mkdir -p own one/proc/driver/nvidia/gpus/0000:01:00.0 one/dev; : > one/dev/nvidia0
printf 'GPU UUID: \t GPU-0\nDevice Minor: \t 0\n' > one/proc/driver/nvidia/gpus/0000:01:00.0/information
cp "$F" own
export FSDP_TEST_ROOT=$WORK/one # a machine with one GPU
"$BIN/fsdp-agent" --socket "$WORK/agent.sock" 2> agent.log & agent=$!
wait_until 20 grep -q serves agent.log
unset FSDP_TEST_ROOT
for columns in 80 120; do
  says $columns 0 ps
  check_match "it has a run that was killed" 'was killed; its run directory is ' "$(frames | xargs)"
  says $columns 66 status nothing
  for command in status events logs restart stop inspect; do says $columns 2 $command a-name; done
  for command in status events inspect logs; do says $columns 0 $command $long; done
  says $columns 78 stop --save $program
  says $columns 0 restart $program
  says $columns 2 doctor something-else
  says $columns 2 doctor --jsn
  in_terminal $columns "$F doctor" < /dev/null # its status is the machine's
  check_eq "fsdprun doctor in $columns columns: none of its lines is longer" "" "$(too_long $columns)"
  for command in ls show verify; do says $columns 0 ckpt $command runs/tiny; done
  says $columns 1 ckpt verify damaged
  says $columns 1 ckpt diff runs/tiny/checkpoints/step-00000015 runs/tiny/checkpoints/step-00000020
  says $columns 0 ckpt export runs/tiny "$PWD/$long_name.$columns"
  says $columns 0 ckpt import "$PWD/$long_name.$columns" "imported.$columns"
  says $columns 2 ckpt export runs/tiny "$PWD/$long_name.$columns"
  says $columns 66 ckpt prune --keep 1 "runs/$long_name"
  says $columns 66 ckpt ls "$PWD/$long_name/is/not/there"
  says $columns 2 ckpt lss
  says $columns 2 ckpt import --steps 5 a b
  says $columns 0 plot runs/tiny
  says $columns 66 plot nothing
  says $columns 0 plan job.yaml
  says $columns 0 plan --memory 100K job.yaml
  says $columns 127 statsu
  says $columns 2 --nnodes 2 job.yaml
  says $columns 2 --gpus 4 job.yaml
  says $columns 78 wrong.yaml
  says $columns 75 --agent "$PWD/nothing" --detach job.yaml
  says $columns 0 job.yaml --set run.name=$long_name-$columns --set train.steps=40
  check_match "it has the end of a job" 'next: ' "$(frames)"
  says $columns 3 --max-restarts 1 -r 3 "$TOY/toy" exit=3
  check_match "it has a first cause" 'fsdprun: rank 0 .* exited with status 3 before rendezvous, generation 1' "$(frames | xargs)"
  says $columns 78 job.yaml --set run.name=a/b
  says $columns 2 logs --since yesterday $long
  export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2
  says $columns 2 job.yaml
  check_match "it names srun" 'start it by srun' "$(frames | xargs)"
  unset SLURM_JOB_ID SLURM_JOB_NUM_NODES
  export FSDP_TEST_ROOT=$WORK/one
  says $columns 0 --agent "$WORK/agent.sock" --detach --gpus 1 --rdzv-id holds "$TOY/toy" hang
  : > drawn
  { wait_until 20 grep -q 'waits for' drawn; printf '\003'; } | in_terminal $columns "trap : INT; $F --agent $WORK/agent.sock --gpus 1 $TOY/toy"
  check_eq "a job that waits for a GPU in $columns columns: none of its lines is longer" "status=130" "$(too_long $columns)$(frames | grep '^status=')"
  unset FSDP_TEST_ROOT
  "$F" stop holds
  for option in install uninstall; do F=$WORK/own/fsdprun says $columns 0 --$option-as-torchrun; done
  F=$BIN/fsdp-agent says $columns 2 --socket
  F=$BIN/fsdp-agent says $columns 2 --idle-exit never
  F=$BIN/fsdp-agent says $columns 75 --socket "$WORK/agent.sock"
  F=$BIN/fsdp-agent says $columns 0 --socket "$WORK/$columns.sock" --idle-exit 1
done
check_match "a table of ckpt is cut where names are" '^…' "$(in_terminal 60 "$F ckpt show runs/tiny" < /dev/null; frames)"
check_eq "in a pipe it is not" 0 "$(COLUMNS= "$F" ckpt show runs/tiny | grep -c …)"
check_eq "nor is a message broken there" 1 "$("$F" status a-name 2>&1 | wc -l)"
