# What torchrun keeps of its workers' output, and how it shows it: layout, filters, prefixes (tail_log_test.py
# and the logs specs of multiprocessing/api_test.py); and what fsdprun adds: the index, rotation, nothing ever
# deleted.
. tests/support/shell/harness.sh
F=$BIN/fsdprun
unset TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
sorted() { sort "$1" | xargs; }

# where things are
# shellcheck disable=SC2016 # here and below: expanded by the worker
"$F" --log-dir "$WORK/l" --rdzv-id job7 --nproc-per-node 2 -r 3 /bin/sh -c 'echo "$TORCHELASTIC_ERROR_FILE"' 2> "$WORK/err"
run=$(echo "$WORK"/l/*)
check_match "the run's directory is <run id>_<random>" '/l/job7_[a-z0-9_]{8}$' "$run"
check_eq "each rank's folder has its two streams" "0 0/stderr.log 0/stdout.log 1 1/stderr.log 1/stdout.log index.jsonl" \
  "$(cd "$run/attempt_0" && find . -mindepth 1 | sed 's|^\./||' | sort | xargs)"
check_eq "and is where the error file goes" "$run/attempt_0/1/error.json" "$(cat "$run/attempt_0/1/stdout.log")"
check_eq "the index names every rank" 2 "$(grep -c '"host": "'"$(hostname)"'"' "$run/attempt_0/index.jsonl")"
check "in JSON" "$TOY/json_check" -l "$run/attempt_0/index.jsonl"
check_match "with its files, beside the index" '"rank": 1, "local_rank": 1, "node_rank": 0, .*"pid": [0-9]+, "stdout": "1/stdout.log", "stderr": "1/stderr.log", "error_file": "1/error.json"}' \
  "$(cat "$run/attempt_0/index.jsonl")"
check_eq "what is not captured is null in it" '"stdout": "0/stdout.log", "stderr": null' \
  "$("$F" --log-dir "$WORK/i" -r 1 "$TOY/toy" say=x 2> /dev/null; grep -o '"stdout.*null' "$WORK"/i/*/attempt_0/index.jsonl)"

"$F" --log-dir "$WORK/g" --max-restarts 2 -t 3 "$TOY/toy" gen=0 say=zero gen=1 say=one gen=2 say=two gen=0 exit=3 gen=1 exit=3 \
  > "$WORK/out" 2> "$WORK/err"
check_eq "every restart has a directory of its own" "zero one two" "$(cat "$WORK"/g/*/attempt_{0,1,2}/0/stdout.log | xargs)"
check_eq "with an index each" "1 1 1" "$(for a in 0 1 2; do wc -l < "$(echo "$WORK"/g/*/attempt_$a/index.jsonl)"; done | xargs)"
"$F" --log-dir "$WORK/g" -r 1 "$TOY/toy" say=again 2> /dev/null
check_eq "another run in the same log directory deletes nothing" "again one two zero" "$(cat "$WORK"/g/*/attempt_*/0/stdout.log | sort | xargs)"
check_status "a log directory that is a file is bad usage" 2 "$F" --log-dir "$0" "$TOY/toy"
mkdir "$WORK/tmp"
TMPDIR=$WORK/tmp "$F" "$TOY/toy" say=x > /dev/null 2>&1
check_eq "without --log-dir nothing stays behind" "" "$(ls "$WORK/tmp")"
TMPDIR=$WORK/tmp "$F" -r 1 "$TOY/toy" say=x > /dev/null 2>&1
check_eq "but what was redirected is kept" 1 "$(find "$WORK/tmp" -name stdout.log | wc -l)"

# the null device
check_eq "with the null device a rank has no error file" "[default0]:" \
  "$("$F" --log-dir /dev/null -t 1 /bin/sh -c 'echo $TORCHELASTIC_ERROR_FILE' 2> /dev/null)"
check_status "lines cannot be kept twice where none is kept" 78 "$F" --log-dir /dev/null -t 1 --duplicate-stdout-filters x "$TOY/toy"

# who is shown
say() { printf '%s' '[ -t 1 ]; echo out$RANK; echo err$RANK >&2'; }
"$F" --nproc-per-node 12 --local-ranks-filter 0,11 /bin/sh -c "$(say)" > "$WORK/out" 2> "$WORK/err"
check_eq "of inherited streams only the ranks that are named are seen" "out0 out11 | err0 err11" "$(sorted "$WORK/out") | $(sorted "$WORK/err")"
# In a file, as $$ in an argument is torchrun's way to write one $.
echo 'out=$(readlink /proc/$$/fd/1) err=$(readlink /proc/$$/fd/2); echo $out $err > '"$WORK/streams"'$RANK' > "$WORK/worker.sh"
"$F" --nproc-per-node 2 --local-ranks-filter 0 /bin/sh "$WORK/worker.sh" > "$WORK/out" 2> "$WORK/err"
check_match "the others' stdout is the null device; of both the last words are known" \
  "^$WORK/out pipe:[^ ]+ /dev/null pipe:[^ ]+\$" "$(cat "$WORK/streams0" "$WORK/streams1" | xargs)"
"$F" --log-dir "$WORK/f" --nproc-per-node 3 -t 3 --local-ranks-filter 1 /bin/sh -c "$(say)" > "$WORK/out" 2> "$WORK/err"
check_eq "of teed ones too" "[default1]:out1 | [default1]:err1" "$(cat "$WORK/out") | $(cat "$WORK/err")"
check_eq "and their files have all" "out0 out1 out2 err0 err1 err2" \
  "$(cat "$WORK"/f/*/attempt_0/{0,1,2}/stdout.log "$WORK"/f/*/attempt_0/{0,1,2}/stderr.log | xargs)"
"$F" --log-dir "$WORK/f2" --nproc-per-node 2 -r 0:3 --local-ranks-filter 0 /bin/sh -c "$(say)" > "$WORK/out" 2> "$WORK/err"
check_eq "a redirected rank that is shown is still in its file only" " | | out0" \
  "$(cat "$WORK/out") | $(cat "$WORK/err")| $(cat "$WORK"/f2/*/attempt_0/0/stdout.log)"

# lines kept twice
words='echo an apple $RANK; echo a pear; echo an orange, and apples; echo "x,y"; echo ERROR $RANK >&2; echo fine >&2'
"$F" --log-dir "$WORK/d" --nproc-per-node 2 -t 3 --duplicate-stdout-filters apple,orange --duplicate-stderr-filters ERROR \
  /bin/sh -c "$words" > "$WORK/out" 2> "$WORK/err"
check_eq "teed lines with any of the words are in one file, with their prefix" \
  "[default0]:an apple 0/[default0]:an orange, and apples/[default1]:an apple 1/[default1]:an orange, and apples/" \
  "$(sort "$WORK"/d/*/attempt_0/filtered_stdout.log | tr '\n' /)"
check_eq "those of stderr in another" "[default0]:ERROR 0 [default1]:ERROR 1" "$(sorted "$WORK"/d/*/attempt_0/filtered_stderr.log)"
check_eq "and on the console as ever" 8 "$(wc -l < "$WORK/out")"
"$F" --log-dir "$WORK/d2" --nproc-per-node 3 -t 0:1 -r 1:1 --duplicate-stdout-filters apple,x,,y /bin/sh -c "$words" > "$WORK/out" 2> "$WORK/err"
check_eq "two commas are one; what is not teed is not kept" "[default0]:an apple 0/[default0]:an orange, and apples/[default0]:x,y/" \
  "$(tr '\n' / < "$(echo "$WORK"/d2/*/attempt_0/filtered_stdout.log)")"
"$F" --log-dir "$WORK/d3" --max-restarts 1 -t 1 --duplicate-stdout-filters a "$TOY/toy" gen=0 say=a0 gen=1 say=a1 gen=0 exit=1 > "$WORK/out" 2> "$WORK/err"
check_eq "each restart has its own" "[default0]:a0 | [default0]:a1" \
  "$(cat "$WORK"/d3/*/attempt_0/filtered_stdout.log) | $(cat "$WORK"/d3/*/attempt_1/filtered_stdout.log)"
"$F" --log-dir "$WORK/d4" --nproc-per-node 2 -t 1 --local-ranks-filter 0 --duplicate-stdout-filters apple /bin/sh -c "$words" > "$WORK/out" 2> "$WORK/err"
check_eq "a rank that is not shown has its lines in it too" 2 "$(grep -c 'default1' "$WORK"/d4/*/attempt_0/filtered_stdout.log)"

# prefixes
check_eq "torchrun's prefix has the role" "[trainer0]:x" "$("$F" --role trainer -t 1 "$TOY/toy" say=x 2> /dev/null)"
for pair in '[rank${rank}]: |[rank1]: x' '${role_name}/${local_rank} |default/1 x' '$rank$$ ${other} |1$ ${other} x' '${stream}${generation}:|stdout0:x'; do
  check_eq "the template ${pair%%|*}" "${pair#*|}" \
    "$(TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="${pair%%|*}" "$F" --nproc-per-node 2 -t 1:1 "$TOY/toy" rank=1 say=x 2> /dev/null)"
done

# rotation
"$F" --log-dir "$WORK/rot" --log-limit 64K --log-keep 3 -t 1 "$TOY/toy" flood=1000000 say=last > "$WORK/out" 2> "$WORK/err"
check_eq "the console misses no line of files that rotate under it" "10000 1" \
  "$(grep -c '^\[default0\]:x\{99\}$' "$WORK/out") $(grep -c '^\[default0\]:last$' "$WORK/out")"
dir=$(echo "$WORK"/rot/*/attempt_0/0)
check_eq "the files that were asked for are kept" "stdout.log stdout.log.1 stdout.log.2 stdout.log.3" "$(cd "$dir" && echo stdout*)"
check_eq "each ends with a line at its limit" "65600 65600 65600" "$(cd "$dir" && stat -c %s stdout.log.* | xargs)"
check_eq "and the newest ends with the last" last "$(tail -n 1 "$dir/stdout.log")"
"$F" --log-dir "$WORK/rot1" --log-limit 64K --log-keep 100 --nproc-per-node 4 -t 3 "$TOY/volume" write 8000000 4 > "$WORK/console" 2>&1
check "four ranks with rotating files: every line is shown" "$TOY/volume" check 8000000 4 < "$WORK/console"
n=0
for rank in 0 1 2 3; do
  dir=$(echo "$WORK"/rot1/*/attempt_0/$rank)
  # shellcheck disable=SC2012
  RANK=$rank "$TOY/volume" write 8000000 4 2> /dev/null | cmp -s - <(cat $(ls -v "$dir"/stdout.log.* | tac) "$dir/stdout.log") && n=$((n + 1))
done
check_eq "the row of files is byte for byte what was written" 4 $n

# one that holds on
"$F" --log-dir "$WORK/hold" -t 3 --shutdown-timeout 2 /bin/sh -c 'setsid /bin/sh -c "trap \"\" TERM; exec sleep 1000" & echo over' \
  > "$WORK/out" 2> "$WORK/err" &
pid=$!
check "a grandchild that holds the pipe delays no end" wait_until 30 bash -c "! kill -0 $pid"
wait $pid
check_eq "and all is shown" "0 [default0]:over" "$? $(cat "$WORK/out")"
