# Inherited output, torchrun's default: it comes out byte for byte and in order, and a terminal stays one.
# Still, the last words of a failed rank are in the last lines and in errors.json.
source tests/support/shell/harness.sh
toy=$TOY/toy
export TMPDIR=$WORK
worker() { cat > "$WORK/$1"; chmod +x "$WORK/$1"; }
last() { tail -n "${2:-1}" "$1"; }

# Order and bytes. One worker writes to both by turns: whoever gives them the same place sees that order.
worker turns <<'END'
#!/bin/sh
i=0
while [ $i -lt 400 ]; do echo "out $i"; echo "err $i" >&2; printf 'half %d\r' $i; i=$((i + 1)); done
END
"$WORK/turns" > "$WORK/want" 2>&1
"$FSDPRUN" -- "$WORK/turns" > "$WORK/file" 2>&1 < /dev/null
check "2>&1 into a file: the same bytes in the same order" cmp "$WORK/want" "$WORK/file"
"$FSDPRUN" -- "$WORK/turns" 2>&1 < /dev/null | cat > "$WORK/piped"
check "2>&1 into a pipe: the same" cmp "$WORK/want" "$WORK/piped"
"$FSDPRUN" -- "$WORK/turns" > "$WORK/o" 2> "$WORK/e" < /dev/null
"$WORK/turns" > "$WORK/o.want" 2> "$WORK/e.want"
check "apart: stdout" cmp "$WORK/o.want" "$WORK/o"
check "apart: stderr" cmp "$WORK/e.want" "$WORK/e"
"$FSDPRUN" --nproc-per-node 4 -- "$WORK/turns" 2>&1 < /dev/null | tr '\r' '\n' > "$WORK/four"
check_eq "four workers: no line is torn" 4800 "$(grep -cE '^(out|err|half) [0-9]+$' "$WORK/four")"
check_eq "and there is nothing else" 4800 "$(wc -l < "$WORK/four")"
check_eq "stdout that goes elsewhere is the worker's own" "$WORK/own" \
  "$("$FSDPRUN" -- "$(command -v readlink)" /proc/self/fd/1 > "$WORK/own" 2> /dev/null < /dev/null; \
  cat "$WORK/own")"

# A reader that comes late, and one that goes early.
slow=$(mkfifo "$WORK/fifo"; { wait_until 60 test -s "$WORK/pids" && cat; } < "$WORK/fifo" |
  wc -c & "$FSDPRUN" -- "$toy" "touch=$WORK/pids" flood=3000000 > "$WORK/fifo" 2>&1 < /dev/null; wait)
check_eq "a reader that comes late gets all of it" "$("$toy" flood=3000000 | wc -c)" "$slow"
check_eq "one that goes ends who writes, as without us: by SIGPIPE" "y 141" \
  "$( (timeout 600 "$FSDPRUN" --quiet -- "$(command -v yes)" 2>&1 < /dev/null; echo $? > "$WORK/st") |
  head -n 1) $(cat "$WORK/st")"

# A reader who never reads: a signal ends the run all the same, whoever writes the last line.
mkfifo "$WORK/unread"; exec 7<> "$WORK/unread"
worker fills <<END
#!/bin/sh
: > "\$MARK"
exec yes
END
ended() { [ ! -e "/proc/$1/stat" ] || [ "$(awk '/^State/ {print $2}' "/proc/$1/status" 2> /dev/null)" = Z ]; }
for flags in "" "--tee 3" "--direct-output"; do
  MARK=$WORK/mark${flags// /} "$FSDPRUN" $flags --nproc-per-node 2 --shutdown-timeout 1 -- "$WORK/fills" >&7 2>&7 < /dev/null & pid=$!
  wait_until 60 test -e "$WORK/mark${flags// /}"
  kill -TERM $pid
  check "${flags:-inherited}: nobody reads, and SIGTERM ends it" wait_until 60 ended $pid
  kill -KILL $pid 2> /dev/null; wait $pid 2> /dev/null
done
exec 7>&-

# What is no reader's end is passed over; a line of ours begins a line.
worker talks <<'END'
#!/bin/sh
i=0
while [ $i -lt 2000 ]; do echo "line $i" >&2; i=$((i + 1)); done
END
check_status "a device that is full ends nobody" 0 bash -c "\"$FSDPRUN\" -- \"$WORK/talks\" < /dev/null > /dev/null 2> /dev/full"
"$FSDPRUN" -- "$(command -v sh)" -c 'printf "progress 50%%" >&2; exit 7' > /dev/null 2> "$WORK/e" < /dev/null
check_eq "after half a line ours begin a new one" "progress 50%" "$(head -n 1 "$WORK/e")"
check_match "and are there" "^fsdprun: rank 0 " "$(last "$WORK/e")"

# Last words, wherever they go.
worker failing <<'END'
#!/bin/sh
echo "reading data"
[ "$RANK" = 1 ] || exec sleep 1000
echo "opening shard 7" >&2
echo "the disk is on fire" >&2
exit 9
END
"$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d1" -- "$WORK/failing" > "$WORK/o" 2> "$WORK/e" < /dev/null
once() { # NAME ERRORS_DIR OUTPUT
  check_match "$1: they have just gone by, and are not repeated above the last line" \
    'opening shard 7.the disk is on fire.fsdprun: more in .*/errors.json.fsdprun: rank 1 .*exited with status 9' "$(tr '\n' '.' < "$3")"
  check_eq "$1: they stand there once" 1 "$(grep -c 'opening shard 7' "$3")"
  check_match "$1: and in errors.json" '"stderr": \[.*"opening shard 7", "the disk is on fire"\]' "$(cat "$2"/*/errors.json)"
  check "$1: whose path is named" test -s "$(sed -n 's/^fsdprun: more in //p' "$3")"
}
once "into files" "$WORK/d1" "$WORK/e"
"$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d2" -- "$WORK/failing" 2>&1 < /dev/null | cat > "$WORK/e"
once "into one pipe" "$WORK/d2" "$WORK/e"
export -f wait_until wait_at_most # a worker of bash waits for conditions too
worker drowned <<'END'
#!/usr/bin/env bash
[ "$RANK" = 1 ] && { wait_until 60 test -e "$1"; echo "the disk is on fire" >&2; exit 9; }
trap 'head -c 20000 /dev/zero | tr "\\0" "x" >&2; exit 1' TERM
sleep 1000 &
: > "$1"
wait
END
"$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d9" -- "$WORK/drowned" "$WORK/drowned.up" > "$WORK/o" 2> "$WORK/e" < /dev/null
check_eq "what has scrolled away since is repeated" 2 "$(grep -c 'the disk is on fire' "$WORK/e")"
"$FSDPRUN" --nproc-per-node 2 --log-dir "$WORK/d3" -- "$WORK/failing" > /dev/null 2>&1 < /dev/null
check_match "where nobody sees them: in errors.json" '"stderr": \["opening shard 7", "the disk is on fire"\]' "$(cat "$WORK"/d3/*/errors.json)"
"$FSDPRUN" --nproc-per-node 2 --local-ranks-filter 0 --log-dir "$WORK/d4" -- "$WORK/failing" > "$WORK/o" 2> "$WORK/e" < /dev/null
check_match "of a rank that is not shown they stand above the last line" \
  'fsdprun: its last lines on stderr:.*  opening shard 7.  the disk is on fire.fsdprun: rank 1 .*exited with status 9' \
  "$(tr '\n' '.' < "$WORK/e")"
check_eq "which is not shown otherwise" 1 "$(grep -c 'opening shard' "$WORK/e")"
"$FSDPRUN" --nproc-per-node 2 --direct-output --log-dir "$WORK/d5" -- "$WORK/failing" > "$WORK/o" 2> "$WORK/e" < /dev/null
check_match "--direct-output: the last lines say where they went, and what keeps them" \
  'not kept: --direct-output.*--tee 3.*rank 1 .*status 9' "$(last "$WORK/e" 3 | tr '\n' '.')"
check_eq "--direct-output: stderr is the worker's own" "$WORK/own" \
  "$("$FSDPRUN" --direct-output -- "$(command -v readlink)" /proc/self/fd/2 2> "$WORK/own" < /dev/null)"
check_status "--direct-output is for programs" 2 "$FSDPRUN" --direct-output "$SOURCE/configs/quickstart.yaml"

# A terminal, by script(1) where it is found.
worker looks <<'END'
#!/bin/sh
[ -t 1 ] && echo "stdout is a terminal"
[ -t 2 ] && echo "stderr is a terminal" >&2
stty size <&2
printf '10%%\r20%%\r\033[1mdone\033[0m\n'
echo "the last word" >&2
exit 4
END
if command -v script > /dev/null; then
  on_terminal() {
    timeout 600 script -qec "stty rows 31 cols 97; $1" /dev/null < /dev/null > "$WORK/tty" 2>&1
  }
  on_terminal "exec $FSDPRUN --log-dir $WORK/d6 -- $WORK/looks"
  check_match "stdout stays a terminal" "stdout is a terminal" "$(cat "$WORK/tty")"
  check_match "stderr stays a terminal" "stderr is a terminal" "$(cat "$WORK/tty")"
  check_match "of its size" "^31 97" "$(cat "$WORK/tty")"
  check "what it writes is not changed" grep -q "$(printf '^10%%\r20%%\r\033\\[1mdone\033\\[0m\r$')" "$WORK/tty"
  check_match "the last line stands below its last words" "the last word  *fsdprun: more in .*rank 0 .*status 4" "$(tr '\r\n' '  ' < "$WORK/tty")"
  check_match "and kept" '"the last word"\]' "$(cat "$WORK"/d6/*/errors.json)"
  on_terminal "exec $FSDPRUN -- $WORK/looks > $WORK/o"
  check_match "stderr alone is a terminal" "stderr is a terminal" "$(cat "$WORK/tty")"
  check_eq "and stdout a file" "" "$(grep terminal "$WORK/o")"
  on_terminal "$WORK/turns > $WORK/none; $WORK/turns"; cp "$WORK/tty" "$WORK/tty.want"
  on_terminal "$FSDPRUN -- $WORK/turns > $WORK/none; $FSDPRUN -- $WORK/turns"
  check "both on a terminal: the same bytes in the same order" cmp "$WORK/tty.want" "$WORK/tty"
else
  skip "a terminal stays one" "no script(1)"
fi

# Python's traceback, without @record: of what ended the program, and not of what it only logged.
if command -v python3 > /dev/null; then
  cat > "$WORK/raises.py" <<'END'
import atexit, os, sys
if os.environ.get("PREFIX"): atexit.register(lambda: print("a warning at the end", file=sys.stderr))
class Leaves:
    def __del__(self): raise KeyError("on the way out")
kept = Leaves()
def dig(n):
    if n == 0:
        raise ValueError("layer " + os.environ["RANK"])
    dig(n - 1)
try:
    dig(1)
except ValueError as error:
    if os.environ.get("PREFIX"): sys.excepthook = lambda t, e, b: print("\n".join("[rank0]: " + l for l in "".join(__import__("traceback").format_exception(t, e, b)).splitlines()), file=sys.stderr)
    raise RuntimeError("cannot go on") from error
END
  for prefix in "" yes; do
    rm -rf "$WORK/d7"
    PREFIX=$prefix "$FSDPRUN" --log-dir "$WORK/d7" "$WORK/raises.py" > "$WORK/o" 2> "$WORK/e" < /dev/null
    check_match "${prefix:+prefixed: }the exception is in the last line" "rank 0 .*exited with status 1.*: RuntimeError: cannot go on$" "$(last "$WORK/e")"
    check_eq "${prefix:+prefixed: }its traceback has gone by, and is not repeated" 1 "$(grep -c 'ValueError: layer 0' "$WORK/e")"
    check_match "${prefix:+prefixed: }and in errors.json" \
      '"message": "RuntimeError: cannot go on", "traceback": "Traceback .*ValueError: layer 0.*direct cause.*RuntimeError: cannot go on.n"' \
      "$(cat "$WORK"/d7/*/errors.json)"
    check_match "${prefix:+prefixed: }with what came after" \
      "\"stderr\": .*$([ -n "$prefix" ] && echo "a warning at the end" || echo "on the way out")" \
      "$(cat "$WORK"/d7/*/errors.json)"
  done

  python() { # NAME: runs stdin as a program
    rm -rf "$WORK/d8"
    cat > "$WORK/$1.py"
    # In a rank that is not shown: what comes out is fsdprun's account.
    "$FSDPRUN" --nproc-per-node 2 --local-ranks-filter 1 --log-dir "$WORK/d8" -- sh -c '[ "$RANK" = 0 ] || exec sleep 1000; exec python3 -u "$1"' \
      sh "$WORK/$1.py" > "$WORK/o" 2> "$WORK/e" < /dev/null
    account=$(sed -n '/^fsdprun: its /,$p' "$WORK/e" | tr '\n' '~') json=$(cat "$WORK"/d8/*/errors.json)
  }
  python logged << 'END'
import logging, sys
try: 1 / 0
except ZeroDivisionError: logging.exception("ignored")
sys.exit("config missing")
END
  check_match "a logged traceback is not the cause" \
    "its last lines on stderr:~.*ZeroDivisionError.*~  config missing~fsdprun: rank 0 .*exited with status 1 .*generation 0; 1 other rank was stopped~$" \
    "$account"
  check_match "nor in errors.json" '"message": null, "traceback": null' "$json"
  python lines <<'END'
raise RuntimeError('Error(s) in loading state_dict for M:\n\tMissing key(s): "b".\n\tsize mismatch for w: 3, not 2.\nsee the manual')
END
  check_match "a message of several lines is whole in the last line" 'for M: Missing key\(s\): "b"\. size mismatch for w: 3, not 2\. see the manual; 1 other rank was stopped~$' "$account"
  check_match "in the account" 'RuntimeError: Error.*for M:~  .Missing key\(s\): "b"\.~  .size mismatch.*~  see the manual~fsdprun: rank 0' "$account"
  check_match "and in errors.json" '"message": "RuntimeError: Error[^,]*Missing key.*see the manual", "traceback": "Traceback.*see the manual.n"' "$json"
  # Groups, notes and syntax errors are held by the unit tests last_words.
else
  skip "Python's traceback" "no python3"
fi
