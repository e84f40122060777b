# The cases of torchrun's test/distributed/launcher/test_run.py, against fsdprun. README.md says which is which.
source tests/support/harness.sh
FSDPRUN=${FSDPRUN:-$BIN/fsdprun}
SH=$SOURCE/tests/conformance/programs/touch_rank.sh
PY=$SOURCE/tests/conformance/programs/touch_rank.py
export PARENTS_WORD=foobar
port=$(port_block)
unset $(env | sed -n 's/^\(PET_[A-Z_]*\)=.*/\1/p') OMP_NUM_THREADS
run() { timeout -k 5 600 "$FSDPRUN" "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null; }
touched() { ls "$WORK/touched" | sort -n | tr '\n' ' ' | sed 's/ $//'; }
fresh() { rm -rf "$WORK/touched"; mkdir "$WORK/touched"; }
# touches NAME WANTED_RANKS OPTIONS...: those ranks, and no others, left their file, and the run ended with 0
touches() {
  local name=$1 want=$2; shift 2
  fresh
  run "$@" "$WORK/touched"
  check_eq "$name" "0: $want" "$?: $(touched)" || tail -n 10 "$WORK/err" >&2
}
# refuses NAME STATUS LINE OPTIONS...: bad usage is that status and that line; nothing is started
refuses() {
  local name=$1 status=$2 line=$3; shift 3
  fresh
  run "$@" "$WORK/touched"
  check_eq "$name" "$status: " "$?: $(touched)" && check_match "$name: it is said" "$line" "$(cat "$WORK/err")"
}
common=(--monitor-interval=1 --start-method=spawn)
four="0 1 2 3"

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then export PYTHON_EXEC=$FSDP_TEST_PYTHON; fi
if [ -n "${FSDP_TEST_PYTHON:-}" ] || command -v python3 > /dev/null; then
  touches "four workers run a Python script" "$four" --nnodes=1 --nproc-per-node=4 --rdzv-id=17 "${common[@]}" "$PY"
  touches "a given master and node rank" "$four" --nnodes=1 --nproc-per-node=4 "${common[@]}" --master-addr=127.0.0.1 \
    --master-port="$port" --node-rank=0 "$PY"
  touches "--run-path runs it in an interpreter" "$four" --run-path --nnodes=1 --nproc-per-node=4 "${common[@]}" "$PY"
else
  skip "four workers run a Python script" "no python3"
fi

touches "four workers run a shell script" "$four" --nnodes=1 --nproc-per-node=4 --rdzv-id=17 "${common[@]}" --no-python "$SH"
refuses "--no-python with --module" 2 "no-python" --nproc-per-node=4 --no-python --module "$SH"
touches "one worker by default" "0" --nnodes=1 --rdzv-id=17 "${common[@]}" --no-python "$SH"

export PET_NNODES=1 PET_NPROC_PER_NODE=4 PET_RDZV_ID=17 PET_MONITOR_INTERVAL=1 PET_START_METHOD=spawn PET_NO_PYTHON=1
PET_MODULE=1 refuses "--no-python with --module, both by PET_ variables" 2 "no-python"  "$SH"
PET_MODULE=0 touches "all by PET_ variables" "$four" "$SH"
unset PET_NNODES PET_NPROC_PER_NODE PET_RDZV_ID PET_MONITOR_INTERVAL PET_START_METHOD PET_NO_PYTHON

touches "--nproc-per-node=4" "$four" --nnodes=1 --nproc-per-node=4 --no-python "$SH"
every_cpu=$(seq 0 $(($(nproc) - 1)) | tr '\n' ' ' | sed 's/ $//')
touches "--nproc-per-node=cpu is one for each CPU" "$every_cpu" --nproc-per-node=cpu --no-python "$SH"
if ls /dev/nvidia[0-9]* > /dev/null 2>&1; then
  skip "--nproc-per-node=auto without a GPU is one for each CPU" "this machine has a GPU"
else
  touches "--nproc-per-node=auto without a GPU is one for each CPU" "$every_cpu" --nproc-per-node=auto --no-python "$SH"
fi
refuses "--nproc-per-node=unknown" 2 "nproc-per-node" --nnodes=1 --nproc-per-node=unknown --no-python "$SH"
refuses "--nproc-per-node=xpu, which nobody here has" 2 "xpu" --nproc-per-node=xpu --no-python "$SH"

fresh
run --max-restarts=0 --log-dir="$WORK/failed" --nproc-per-node=4 "${common[@]}" "$SH" "$WORK/touched" fail
check_eq "workers that fail fail the run, with their status" 4 $?
check_eq "and that is one failure in the events" 1 "$(cat "$WORK"/failed/*/events.jsonl | grep -c '"event": *"failure"')"
touches "--standalone" "$four" --nnodes=1 --nproc-per-node=4 --standalone "${common[@]}" "$SH"

conf=join_timeout=5,last_call_timeout=1,timeout=5
touches "one of one or two nodes" "$four" --nnodes=1:2 --nproc-per-node=4 --rdzv-backend=c10d \
  --rdzv-endpoint="127.0.0.1:$((port + 1))" --rdzv-conf="$conf" --rdzv-id=18 --insecure "${common[@]}" "$SH"

port=$((port + 2))
both=(--nnodes=1:2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint="127.0.0.1:$port" --rdzv_conf=timeout=5,last_call_timeout=30
  --rdzv-id=19 --insecure "${common[@]}" "$SH" "$WORK/touched")
fresh
timeout -k 5 600 "$FSDPRUN" "${both[@]}" > "$WORK/other" 2>&1 < /dev/null &
other=$!
run "${both[@]}"
status=$?
wait "$other"
check_eq "two agents at one endpoint are one world of eight" "0 0: 0 1 2 3 4 5 6 7" "$status $?: $(touched)" || tail "$WORK/other" "$WORK/err" >&2

touches "--nnodes=1" "0" --nnodes=1 "$SH"
refuses "--nnodes=2:20:30" 2 "nnodes" --nnodes=2:20:30 "$SH"
refuses "--nnodes=20:2" 2 "nnodes" --nnodes=20:2 "$SH"
refuses "--logs-specs names a Python entry point" 2 "logs-specs" --run-path --nproc-per-node=1 --logs_specs=DOESNOT_EXIST "$PY"

fresh
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank${rank}]: ' run --nnodes=1 --nproc-per-node=4 --rdzv-id=17 --redirect=3 --tee=3 \
  "${common[@]}" --no-python "$SH" "$WORK/touched"
check_eq "the prefix template of teed lines" "0: 4" "$?: $(grep -cE '^\[rank([0-3])\]: creating .*/touched/\1$' "$WORK/out")"
CUDA_VISIBLE_DEVICES=5,7 run --nproc-per-node=2 --virtual-local-rank --redirect=3 --tee=3 "$TOY/toy" env=LOCAL_RANK env=CUDA_VISIBLE_DEVICES
check_eq "--virtual-local-rank: local rank 0 and one device for each" \
  "[default0]:CUDA_VISIBLE_DEVICES=5 [default0]:LOCAL_RANK=0 [default1]:CUDA_VISIBLE_DEVICES=7 [default1]:LOCAL_RANK=0" \
  "$(sort "$WORK/out" | tr '\n' ' ' | sed 's/ $//')"

# Called by its old name.
ln -s "$FSDPRUN" "$WORK/torchrun"
FSDPRUN=$WORK/torchrun
touches "by the name of torchrun" "$four" --nnodes=1 --nproc-per-node=4 --rdzv-id=17 --no-python "$SH"
refuses "by the name of torchrun: bad usage is 2" 2 "no-such-flag" --no-such-flag "$SH"
[ "$n_failed" = 0 ]
