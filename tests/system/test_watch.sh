# ps --watch, status --watch and top: what is shown in a terminal of 80 and of 120 columns, what it costs, and
# how the terminal is left. A terminal is made by script(1); what was drawn is in its typescript.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/terminal.sh
F=$BIN/fsdprun T=$TOY/toy
export XDG_RUNTIME_DIR=$WORK/runtime
mkdir -m 700 "$XDG_RUNTIME_DIR" "$WORK/temporary"
export TMPDIR=$WORK/temporary LC_ALL=C.UTF-8 # jobs of other tests are listed below the usual one
unset COLUMNS LINES
cd "$WORK" || exit 1
at_exit() { kill -KILL $(jobs -p) 2> /dev/null; }
lines_are() { [ "$(wc -l < "$1" 2> /dev/null)" = "$2" ]; }
steps() { local s; s=$("$F" status --json tiny 2> /dev/null | sed -n "s/.*\"step\":\([0-9]*\),\"loss.*/\1/p"); [ "${s:-0}" -ge "$1" ]; }

# plain lines
"$F" ps --watch > watched & watcher=$!
"$F" ps -w --json > watched.json & json_watcher=$!
check "ps --watch begins with its titles" wait_until 20 grep -q '^JOB ' watched
name=a-name-that-is-far-too-long-for-a-terminal-of-eighty-columns-and-more-so-for-what-comes-after-it-in-the-line
"$F" --rdzv-id $name --nproc-per-node 2 "$T" touch=up hang > up.out 2>&1 & first=$!
wait_until 20 lines_are up 2
check "a job that comes is told, without a terminal as a line" wait_until 20 grep -q "^$first $name running" watched
check "with --json as an array" wait_until 20 grep -q "^\[{\"job\":\"$first\"" watched.json
check_eq "what stays the same is not told again" "$(wc -l < watched)" \
  "$(wait_until 2 false; wc -l < watched)"
"$F" status -w "$first" > status & status=$!
wait_until 20 grep -q "^$first" status
"$F" restart "$first"
check "a restart is told" wait_until 20 grep -qE "^$first $name +running +1 +2 +1 " watched
"$F" stop "$first"
wait "$first"
wait "$status"
check_eq "status --watch ends with the job" 0 $?
check "that a job goes is told too" wait_until 20 grep -qx '\[\]' watched.json
kill -TERM "$watcher" "$json_watcher"
wait "$watcher" "$json_watcher"

if ! command -v script > /dev/null; then
  skip "tables in a terminal" "no script(1)"
  exit
fi
# Eight ranks that do nothing, and a job that steps.
"$F" --rdzv-id $name --nproc-per-node 8 "$T" touch=up8 hang > up8.out 2>&1 & first=$!
tiny_job job.yaml
"$F" job.yaml --set train.steps=10000000 --set checkpoint.every=0 > job.out 2>&1 & second=$!
wait_until 30 steps 10
wait_until 20 lines_are up8 8
has_drawn() { [ "$(grep -ac "$1" drawn)" -ge "$2" ]; }
# Of an empty `drawn`: a key that comes before the terminal is set up is echoed.
quit_after() { wait_until 30 has_drawn "$@"; printf q; }
for columns in 80 120; do
  for command in ps status\ tiny top; do
    : > drawn
    quit_after tiny 1 | in_terminal $columns "$F" "$command"
    check_match "$command in $columns columns" 'status=0' "$(frames)"
    check_eq "none of its lines is longer" "" "$(wider $columns)"
  done
done
in_terminal 80 "$F" ps < /dev/null
check_match "a name is cut with an ellipsis" 'a-name-[a-z-]*… ' "$(frames)"
for command in "ps -w" "status -w tiny" top "top tiny"; do
  : > drawn
  quit_after 'tiny' 2 | in_terminal 80 "$F" "$command"
  check_match "$command ends by q" 'status=0' "$(frames)"
  check_eq "the cursor and the other screen are back" "$(printf '\033[?25h\033[?1049l' | od -c)" \
    "$(grep -ao "$(printf '\033')\[?25h$(printf '\033')\[?1049l" drawn | tr -d '\n' | od -c)"
  check_eq "and so is the terminal" 1 "$(frames | grep -cx ' *icanon')"
done
printf x | in_terminal 80 "timeout -s TERM 1 $F top"
check_match "a signal that ends it restores the terminal" "$(printf '\033')\[\?25h$(printf '\033')\[\?1049l" "$(cat drawn)"

# what top costs: nine ranks and more, over ten of its pictures at least
: > drawn
quit_after 'tiny' 10 | in_terminal 120 "TIMEFORMAT='top: %R %U %S'; time $F top"
read -r wall cpu < <(sed -nE 's/.*top: ([0-9.]+) ([0-9.]+) ([0-9.]+).*/\1 \2+\3/p' drawn)
share=$(awk "BEGIN { printf \"%.2f\", 100 * ($cpu) / $wall }")
echo "# top of 10 ranks: $share % of a core ($cpu s of CPU in $wall s)"
check "top costs less than 1 % of a core" awk "BEGIN { exit !($wall >= 4 && $share < 1) }"
# What top shows of a job that has restarted: its row, and those of its ranks as they go on.
kill -KILL "$(pid_of runs/tiny 0 1)"
await_logged runs/tiny 1 10 "$second"
# shown KIND COLUMN...: of the rows of the job $id that were drawn, either "job" or "rank"
shown() {
  frames | awk -v id="$id" -v kind="$1" -v columns="${*:2}" 'BEGIN { n = split(columns, wanted) }
    $1 == id && (kind == "rank") == ($2 ~ /^[01]$/) { for (i = 1; i <= n; i++) printf "%s ", $wanted[i]; print "" }'
}
goes_on() { [ "$(shown rank 2 6 | grep '^0 [0-9]' | sort -u | wc -l)" -ge 3 ]; }
# A row of the job and a line of its metrics have the same loss and pace, at about the same step.
is_logged() {
  awk 'function rate(r) { return r < 999.5 ? sprintf("%.0f", r) : sprintf(r < 999.5e3 ? "%.3gk" : "%.3gM", r / (r < 999.5e3 ? 1e3 : 1e6)) }
    NR == FNR { drawn[$1] = $2 " " $3; next }
    { for (step = $1 - 2; step <= $1 + 2; step++) found += (drawn[step] == sprintf("%.4g", $2) " " rate($3)) }
    END { exit !found }' <(shown job 7 8 9) \
    <(sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*"tokens_per_s": \([^,]*\),.*"generation": 1,.*/\1 \2 \3/p' runs/tiny/metrics.jsonl)
}
# has_memory PID MIB: the private memory of a process is between half and twice of that.
has_memory() {
  awk -v drawn="$2" '/^Rss(Anon|Shmem):/ { kib += $2 } END { exit !(kib / 2048 < drawn + 0 && drawn + 0 < kib / 512) }' "/proc/$1/status"
}
id=$second
: > drawn
{ wait_until 30 goes_on; printf q; } | in_terminal 120 "$F" top tiny
check "top: a rank's step moves" goes_on
check "loss and tokens/s are the job's" is_logged
check_eq "and so are its name, ranks, generation and restarts" "tiny 2 1 1" "$(shown job 2 5 6 10 | sort -u | xargs)"
for rank in 0 1; do
  pid=$(pid_of runs/tiny 1 $rank)
  check_eq "rank $rank is in a phase of a step" "" \
    "$(shown rank 2 4 5 | grep "^$rank" | grep -vE "^$rank $pid (data|forward|backward|collective|optimizer|wait) $")"
  memory=$(shown rank 2 7 | sed -n "s/^$rank \(.*\)M $/\1/p" | tail -n 1)
  check "its memory, $memory MiB, is its process's" has_memory "$pid" "$memory"
done
"$F" stop "$first"; "$F" stop "$second"

# a rank on a GPU, which is emulated, and whose load and memory a stand-in for NVML makes up
mkdir gpus
echo $((3 << 30)) > gpus/memory
FSDP_DEVICE=cuda FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6 \
  FSDP_TEST_NVML=$TOY/fake_nvml FAKE_NVML=GPU-aa@0 FAKE_NVML_STATE=$WORK/gpus "$F" job.yaml --nproc-per-node 1 \
  --set run.name=gpu --set train.steps=10000000 --set checkpoint.every=0 > gpu.out 2>&1 & id=$!
draws_gpu() { shown rank 8 9 10 | grep -qx '0000:00:00\.0 50 3G '; }
check "the job on a GPU runs" await_logged runs/gpu 0 1 $id
: > drawn
{ wait_until 30 draws_gpu; printf q; } | in_terminal 120 "$F" top gpu
check "top: a rank's GPU, its load and its memory" draws_gpu
"$F" stop $id
