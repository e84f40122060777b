# The cases of torchrun's multiprocessing/api_test.py that are about where workers' output goes, against fsdprun.
# README.md says which is which, and where the others are.
source tests/support/harness.sh
FSDPRUN=${FSDPRUN:-$BIN/fsdprun}
unset $(env | sed -n 's/^\(PET_[A-Z_]*\)=.*/\1/p') OMP_NUM_THREADS
toy=$TOY/toy
run() { timeout -k 5 600 "$FSDPRUN" "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null; }
log_dir() { rm -rf "$WORK/logs"; echo "$WORK/logs"; }
# What a worker's file holds, or that it is not there: a rank's both streams as "OUT ERR"
file_of() { cat "$WORK"/logs/*/attempt_0/"$1"/"$2".log 2> /dev/null || echo none; }
both() { echo "$(file_of "$1" stdout) / $(file_of "$1" stderr)"; }
sorted() { sort "$1" | tr '\n' ',' | sed 's/,$//'; }

# --- which streams: a word for all, or a map of local ranks
for good in 0 1 2 3 0:1 0:1,1:1; do
  run --log-dir "$(log_dir)" -r "$good" --nproc-per-node 2 "$toy"
  check_eq "streams '$good' are understood" 0 $?
done
for bad in 0:1, 11 0:1,1 1,0:1 4 x; do
  run --log-dir "$(log_dir)" -r "$bad" --nproc-per-node 2 "$toy" "touch=$WORK/started"
  check_eq "streams '$bad' are bad usage" 2 $?
done
[ ! -e "$WORK/started" ] && ok "and start nothing" || not_ok "and start nothing"
run --log-dir "$(log_dir)" -r 10:1,11:2 --nproc-per-node 12 "$toy" say=out err=err
check_eq "local ranks of two digits can be named" "out / none, none / err, none / none" "$(both 10), $(both 11), $(both 1)"

# --- every word, both ranks: in its file and not on the console, or the other way round
words=(0 1 2 3)
in_files=("none / none" "out / none" "none / err" "out / err")
on_console=("out,out / err,err" " / err,err" "out,out / " " / ")
for word in "${words[@]}"; do
  run --log-dir "$(log_dir)" -r "$word" --nproc-per-node 2 "$toy" say=out err=err
  check_eq "redirects $word: what is in the files" "${in_files[word]}, ${in_files[word]}" "$(both 0), $(both 1)"
  check_eq "redirects $word: what is on the console" "${on_console[word]}" "$(sorted "$WORK/out") / $(sorted "$WORK/err")"
done
run --log-dir "$(log_dir)" -r 0:2,1:0 -t 0:1,1:2 --nproc-per-node 2 sh -c 'echo hello stdout from $RANK; echo hello stderr from $RANK >&2'
check_eq "redirects and tee, each by rank: rank 0 has both files" "hello stdout from 0 / hello stderr from 0" "$(both 0)"
check_eq "redirects and tee, each by rank: rank 1 has one" "none / hello stderr from 1" "$(both 1)"
check_eq "redirects and tee, each by rank: the console" \
  "[default0]:hello stdout from 0,hello stdout from 1 / [default1]:hello stderr from 1" \
  "$(sorted "$WORK/out") / $(grep -v '^fsdprun: ' "$WORK/err" | tr '\n' ',' | sed 's/,$//')"

# --- a log directory that cannot be one
: > "$WORK/file"
run --log-dir "$WORK/file" -r 3 "$toy" "touch=$WORK/started"
[ $? -ne 0 ] && [ ! -e "$WORK/started" ] && ok "a file for a log directory is refused" || not_ok "a file for a log directory is refused" "$(cat "$WORK/err")"
check_match "and named" "$WORK/file" "$(cat "$WORK/err")"
run --log-dir "$WORK/not/there/yet" -r 3 "$toy" say=out
check_eq "a log directory that is not there is made" "0 out" "$? $(cat "$WORK"/not/there/yet/*/attempt_0/0/stdout.log)"
run --log-dir "$WORK/not/there/yet" -r 3 "$toy" say=more
check_eq "a second run leaves the first one's files alone" "more out" "$(cat "$WORK"/not/there/yet/*/attempt_0/0/stdout.log | sort | tr '\n' ' ' | sed 's/ $//')"

# --- the end of one of two
run --log-dir "$(log_dir)" -r 0:3 --nproc-per-node 2 "$toy" rank=0 "err=exit 138 from 0" rank=0 exit=138 hang
check_eq "a worker exits with 138: its words are in its file" "138: / exit 138 from 0, none / none" "$?:$(both 0), $(both 1)"
run --nproc-per-node 2 "$toy" rank=1 signal=11 hang
check_eq "a worker dies of SIGSEGV: 139, and it is named" "139 1" "$? $(tail -n 1 "$WORK/err" | grep -c 'rank 1 .*SIGSEGV')"
if [ -n "${FSDP_TEST_PYTHON:-}" ] || command -v python3 > /dev/null; then
  [ -z "${FSDP_TEST_PYTHON:-}" ] || export PYTHON_EXEC=$FSDP_TEST_PYTHON
  printf 'import sys\nif sys.argv[1] == "0": raise RuntimeError("raised on purpose")\nimport time; time.sleep(1000)\n' > "$WORK/raise.py"
  run --log-dir "$(log_dir)" -r 3 --nproc-per-node 2 "$WORK/raise.py" '${local_rank}'
  check_eq "a Python worker raises: 1" 1 $?
  check_match "its exception is told" "RuntimeError: raised on purpose" "$(cat "$WORK/err")"
else
  skip "a Python worker raises: 1" "no python3"
fi
[ "$n_failed" = 0 ]
