# The Python stacks of a hang: --python-stacks turns them on, and a program may do so itself.
. tests/support/shell/harness.sh
if ! PYTHON=$(command -v python3) || ! "$PYTHON" -c 'import faulthandler' 2> /dev/null; then
  skip "test_hang_python: all of it" "there is no python3"
  exit 0
fi
export PYTHON_EXEC=$PYTHON
limit=$((3 * $(pace)))
cat > "$WORK/hangs.py" <<'END'
import os, signal, sys, threading, time
rank, kind = os.environ["RANK"], sys.argv[1]
if kind == "own":
    import faulthandler
    fd, inode, number = map(int, os.environ["FSDPRUN_STACKS"].split(":"))
    faulthandler.register(number, file=fd, all_threads=True)
def say(*words): # in one write: the ranks share the output
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
say("path", [p for p in sys.path if "proc" in p], os.environ.get("PYTHONPATH"), getattr(sys, "others", None))
threading.Thread(target=time.sleep, args=(100000,), daemon=True).start()
if kind == "foreign":
    child = os.fork()
    if child == 0:
        fd, inode, number = map(int, os.environ["FSDPRUN_STACKS"].split(":"))
        if rank == "0":
            os.close(fd)
        signal.signal(number, lambda *_: open("signalled." + rank, "w"))
        while True:
            time.sleep(100000)
    say("pids", os.getpid(), child)
if kind == "fork" and os.fork() == 0:
    time.sleep(100000)
def stuck():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire() # stuck
def wait():
    time.sleep(100000) # wait
stuck() if rank == "1" else wait()
END
mkdir "$WORK/site"
echo 'import sys; sys.others = "imported"' > "$WORK/site/sitecustomize.py"
line() { echo "hangs.py:$(grep -n "# $1" "$WORK/hangs.py" | cut -d : -f 1)"; }
# run NAME OPTIONS... -- PROGRAM...: three ranks in $WORK
run() {
  local name=$1; shift
  (cd "$WORK" && PYTHONPATH=$WORK/site timeout -k 5 1000 "$BIN/fsdprun" --nproc-per-node 3 --hang-timeout $limit --run-dir "$WORK/$name" "$@" > "$WORK/$name.out" 2>&1 < /dev/null)
  echo $? > "$WORK/$name.rc"
}
cause() { tr -d '\n' < "$WORK/$1/errors.json"; }
# named NAME: the stuck rank, and where it and the others are
named() {
  check_eq "$1: 137" 137 "$(cat "$WORK/$1.rc")"
  check_match "$1: the Python line of the stuck rank, which is named" \
    "\"hang\": \{\"ranks\":\"1\",.*\"culprit\":true,.*\"python\":\{\"line\":\"$(line stuck)\",\"function\":\"stuck\",\"threads\":2,.*\"ranks\":\"0,2\".*\"line\":\"$(line wait)\"" \
    "$(cause "$1")"
}
run lock --python-stacks "hangs.py" lock &
run wrapped --python-stacks --no-python sh -c "PYTHONPATH=/before:\$PYTHONPATH '$PYTHON' -u hangs.py lock; exit \$?" &
run fork --python-stacks hangs.py fork &
run own hangs.py own &
run foreign hangs.py foreign &
run isolated --python-stacks --no-python "$PYTHON" -I hangs.py lock &
wait
for name in lock wrapped fork own; do named $name; done
check_match "the line is in the last line of the output" "rank 1 .* in $(line stuck) in stuck" "$(tail -n 1 "$WORK/lock.out")"
check_match "the stack is printed" "^  python  $(line stuck) in stuck$" "$(cat "$WORK/lock.out")"
lines=$(awk '/^fsdprun: rank 1 made no progress for / { n = 1; next } n && /^  / { print ++n; next } { n = 0 }' "$WORK/lock.out" | sort -n | tail -n 1)
check "in at most 20 lines (${lines:-0})" test "${lines:-0}" -ge 5 -a "${lines:-0}" -le 20
check_eq "paths are as without the option, and another sitecustomize is imported" "path [] $WORK/site imported" "$(grep -m 1 '^path' "$WORK/lock.out")"
check_eq "also where a wrapper has put an entry before it" "path [] /before:$WORK/site imported" "$(grep -m 1 '^path' "$WORK/wrapped.out")"
pids() { awk -v field="$1" '/^pids / { print $field }' "$WORK/foreign.out" | tr '\n' '|' | sed 's/|$//'; }
check_eq "no process below a rank is shown that has no Python stack" "" "$(cause foreign | grep -oE "\"pid\":($(pids 3))[^0-9]")"
check_match "but the rank's own" "\"pid\":($(pids 2))[^0-9]" "$(cause foreign)"
check "and one without the memfd gets no signal" test ! -e "$WORK/signalled.0"
check_match "a Python that ignores it says so" '"python":null,"missing":\[.*"python: nothing handles the signal"' "$(cause isolated)"
check_status "not without --hang-timeout" 2 "$BIN/fsdprun" --python-stacks "$WORK/hangs.py"
check_match "and it says why" "\-\-python-stacks needs \-\-hang-timeout" "$(cat "$WORK/err")"
check_status "not for a job" 2 "$BIN/fsdprun" --python-stacks --hang-timeout 9 configs/quickstart.yaml
