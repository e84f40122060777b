# What goes wrong inside NCCL, over the stand-in (tests/emulation/cuda/nccl): a rank that is killed while all
# are in a collective, a collective that never ends, a communicator that never opens.
# Nightly: cuda
. tests/support/shell/harness.sh
export FSDP_DEVICE=cuda FSDP_COLLECTIVES=nccl
export FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so FSDP_EMULATED_DEVICES=2 NCCL_STANDIN_CLOCK=1
. tests/support/shell/cuda_emulated.sh
sed -i 's/every: 2/every: 1/' job.yaml
job=
at_exit() { [ -z "$job" ] || kill -TERM "$job" 2> /dev/null; }
train() { # NAME OPTIONS...
  local name=$1; shift
  mkdir -p "$name"
  NCCL_STANDIN_DIR=$WORK/$name NCCL_STANDIN_LOG=$WORK/$name/calls timeout 2400 "$BIN/fsdprun" \
    --nproc-per-node 2 --log-dir "$WORK/$name" "$@" job.yaml > "$WORK/$name.out" 2>&1
}
pid_of() {
  sed -n "s/.*\"event\": \"spawn\".*\"generation\": $2.*\"rank\": $3, \"pid\": \([0-9]*\).*/\1/p" "$WORK/$1"/*/events.jsonl
}
# All ranks have begun collective N of the world's group, and that of rank 1 is held.
are_in() { [ -n "$(find "$WORK/$1" -name "nccl-*.$2.0")" ] && grep -q "#$2 " "$WORK/$1/calls.1"; }

# A rank of two is killed while both are in a collective that cannot end. The other one dies by TERM; or it is
# deaf to that, as a program may be that saves first: then it is told that a rank is gone, aborts its
# communicator and ends. From the kill to the last spawn of the next generation (and to the abort) it is at
# most 2 s; a machine that is busy with something else gets three tries.
killed_inside() { # NAME COMMAND...: prints the seconds to the last spawn, and to the abort
  local name=$1 began; shift
  mkdir -p "$name"; touch "$name.hold"
  NCCL_STANDIN_HOLD=1:13:$WORK/$name.hold "$@" & job=$!
  wait_until 60 are_in "$name" 13 || return 1
  began=$(date +%s.%N)
  kill -KILL "$(pid_of "$name" 0 1)" || return 1
  rm "$name.hold"
  wait "$job" || return 1
  job=
  sed -n 's/.*"time": \([0-9.]*\), "event": "spawn", "generation": 1.*/\1/p' "$WORK/$name"/*/events.jsonl |
    awk -v began="$began" '{ last = $1 } END { printf "%.3f ", last - began }'
  sed -n 's/^CommAbort at //p' "$name/calls.0" | awk -v began="$began" 'NR == 1 { printf "%.3f\n", $1 - began }'
}
in_time() { # NAME WORDS COMMAND...
  local name=$1 words=$2 rc; shift 2
  for attempt in 1 2 3; do
    killed_inside "$name$attempt" "$@" "$name$attempt" > took; rc=$?
    [ $rc -eq 0 ] && awk '$1 > 2 || $2 > 2 { late = 1 } END { exit late || NR == 0 }' took && break
  done
  check_eq "$words: the run ends well" 0 $rc
  check "$words: aborted and started again within 2 s" awk -v most=$((2 * $(pace))) \
    '$1 <= 0 || $1 > most || $2 > most { late = 1 } END { exit late || NR == 0 }' took
}
as_job() { train "$1" --set launch.max_restarts=1; }
as_deaf_program() {
  sed "s/\"name\": \"run\"/\"name\": \"$1\"/; s|\"dir\": \"[^\"]*\"|\"dir\": \"$WORK/own\"|" undisturbed/run/job.json > "$1.json"
  NCCL_STANDIN_DIR=$WORK/$1 NCCL_STANDIN_LOG=$WORK/$1/calls timeout 2400 "$BIN/fsdprun" --nproc-per-node 2 --max-restarts 1 --log-dir "$WORK/$1" \
    --no-python bash -c "trap '' TERM; exec '$BIN/fsdp-train' '$WORK/$1.json'" > "$WORK/$1.out" 2>&1
}
train undisturbed
in_time job "a rank is killed inside a collective" as_job
check_eq "as if nothing had been" "$(losses undisturbed | tail -n 1)" "$(losses "job$attempt" | tail -n 1)"
in_time deaf "with one that is deaf to TERM" as_deaf_program
check_eq "which aborted, and finished nothing in good order" "1 0" \
  "$(grep -c '^CommAbort' "deaf$attempt/calls.0") $(sed '/^CommAbort/q' "deaf$attempt/calls.0" | grep -c '^CommFinalize')"
check_match "and says why it ended" '"code": 75' "$(grep '"event": "exit", "generation": 0, "rank": 0' "deaf$attempt"/*/events.jsonl)"

# A collective that never ends, of ranks that live: the recorder tells which it is and of what size, though it
# was only queued.
touch hangs.hold
NCCL_STANDIN_HOLD=1:13:$WORK/hangs.hold train hangs --set launch.hang_timeout_s=$((5 * $(pace)))
check_match "a collective that never ends is a hang" '"class": *"hang"' "$(cat hangs/run/errors.json)"
read -r call _ _ elems _ type _ <<< "$(grep '#13 ' hangs/calls.0)"
case $call in AllGather) kind=all_gather ;; ReduceScatter) kind=reduce_scatter ;; *) kind="what is $call?" ;; esac
[ "$type" = 7 ] && bytes=$((elems * 4))
for rank in 0 1; do
  file=hangs/run/logs/g0/rank$rank/collectives.jsonl
  check "rank $rank: what it was in is on disk" "$TOY/json_check" "$file"
  open=$(grep -o '"group": [^}]*"seconds": null}' "$file" | head -n 1)
  check_match "rank $rank: the first that has not ended is that one, with group, sequence and size" \
    "\"group\": \"world\", \"sequence\": [0-9]+, \"kind\": \"$kind\".*\"bytes\": ${bytes:-x}," "$open"
  check_eq "rank $rank: those before it have ended" 12 \
    "$(grep -o '"kind": "\(all_gather\|reduce_scatter\)", "dtype": "float32"[^}]*"seconds": [0-9.]*}' \
    "$file" | wc -l)"
done

# A communicator that stays in progress, with every process alive.
began=$(date +%s)
NCCL_STANDIN_NEVER=1 FSDP_NCCL_INIT_TIMEOUT_S=1 train never; rc=$?
check "opening that never ends is an error" test "$rc" -ne 0
check_match "with its name, the group and the rank" \
  'opening nccl for group world: ncclCommInitRankConfig of group world: still in progress .*FSDP_NCCL_INIT_TIMEOUT_S.*rank [01] of 2' \
  "$(cat never.out)"
check "soon" in_good_time 60000 $((($(date +%s) - began) * 1000))
check_match "and the communicator is given up" '^CommAbort' "$(cat never/calls.0)"
check "what stays in progress does not cost a core: after 1000 questions the rank sleeps between them" \
  awk '/^asked/ { asked += $2; waited += $4 } END { exit !(asked > 1000 && waited > 0 && waited <= asked - 1000 + asked / 10) }' never/calls.0
