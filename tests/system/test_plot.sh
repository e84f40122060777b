# fsdprun plot: a run of a job that was killed once, in a terminal, without UTF-8, and as SVG.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
F=$BIN/fsdprun
export XDG_RUNTIME_DIR=$WORK/runtime
mkdir -m 700 "$XDG_RUNTIME_DIR"
cd "$WORK" || exit 1
unset COLUMNS LINES
tiny_job job.yaml
kill_once() {
  wait_until 30 grep -q '"step": 8,' runs/tiny/metrics.jsonl
  kill -KILL "$(sed -n 's/.*"event": "spawn".*"rank": 1, "pid": \([0-9]*\).*/\1/p' runs/tiny/events.jsonl | head -n 1)"
}
kill_once & killer=$!
check_status "a job, with a rank killed" 0 "$F" job.yaml --set train.steps=400
wait "$killer"
check_match "it has restarted" '"event": "restart"' "$(cat runs/tiny/events.jsonl)"
check_eq "a run is plotted in 80 columns, whatever is on stdout" "0 yes" \
  "$(LC_ALL=C.UTF-8 "$F" plot runs/tiny > plotted; echo $? $(test "$(LC_ALL=C.UTF-8 wc -L < plotted)" -le 80 && echo yes))"
check_match "with the loss" '^ +loss └──' "$(cat plotted)"
check_match "the pace" '^ +tok/s └──' "$(cat plotted)"
check_match "the restart" '^restarts +\^$' "$(cat plotted)"
check_match "and the steps" '^ +step  1 +400$' "$(cat plotted)"
check_eq "plain characters where the locale has no others" "" "$(LC_ALL=C "$F" plot runs/tiny | tr -d '\n -~')"
mkdir calm && grep -m 3 '"step": [123],' runs/tiny/metrics.jsonl > calm/metrics.jsonl
check_match "--json has no restart of a run without one" '^\{"points":\[.*\],"restarts":\[\]\}$' "$("$F" plot --json calm)"
"$F" plot --json runs/tiny > json
check_eq "--json has its points, and where it restarted" "400 1 true" \
  "$(grep -o '"step":' json | wc -l) $(grep -c '"restarts":\[[0-9]*\]' json) $("$TOY/json_check" -l json && echo true)"
check_status "as SVG" 0 "$F" plot --svg run.svg runs/tiny
check_eq "each generation after the first is a line in both panels" 2 "$(grep -c 'class="restart"' run.svg)"
if command -v python3 > /dev/null; then
  check "which is well-formed" python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' run.svg
else skip "which is well-formed" "there is no python3"; fi
check_status "no such run" 66 "$F" plot nothing
check_match "which is said" "nothing is no run directory" "$(cat err)"
mkdir empty
check_status "a directory without metrics" 66 "$F" plot empty
check_match "which is said" "empty has no metrics.jsonl" "$(cat err)"
mkdir odd && mkfifo odd/metrics.jsonl odd/events.jsonl
check_status "a FIFO in place of the metrics is not waited for" 66 timeout 60 "$F" plot odd
rm odd/metrics.jsonl && ln -s /dev/zero odd/metrics.jsonl
check_status "nor is a device read" 66 timeout 60 "$F" plot odd
rm odd/metrics.jsonl && cp calm/metrics.jsonl odd
check_eq "with a FIFO in place of the events the steps are drawn" "$("$F" plot --json calm)" "$(timeout 60 "$F" plot --json odd)"
check_status "a picture that cannot be written" 74 "$F" plot --svg no/such/x.svg runs/tiny
check_status "without a run: bad usage" 2 "$F" plot
