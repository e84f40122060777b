# Hangs injected into jobs, and counted: the right rank is named first, at the right place, within a second of its
# bound. 300 of them in the nightly run, else a sample.
# Nightly: faults
# Alone
#
# A case is drawn from the seed and its number: where a rank hangs, how, which rank, and whether its bound is
# the limit or was learned. There is one node of four ranks, or two nodes of two. HANGS_SEED=S HANGS_CASE=N
# runs that case alone; HANGS and HANGS_AT_ONCE are how many there are, and how many run at a time.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1
tiny_job job.yaml
if [ -n "${FSDP_NIGHTLY:-}" ]; then hangs=${HANGS:-300} at_once=${HANGS_AT_ONCE:-8}; else hangs=${HANGS:-10} at_once=${HANGS_AT_ONCE:-4}; fi
seed=${HANGS_SEED:-$(date +%s)}
limit=$((10 * $(pace)))
ports=()
for ((n = 0; n < hangs; n += 100)); do ports+=("$(port_block)"); done
places=(load collective forward backward save)
kinds=(outside lock socket fifo)
mkfifo fifo

# draw WHAT N: a number below N, of this case
draw() { echo $(($(cksum <<< "$seed $n $1" | cut -d ' ' -f 1) / 7 % $2)); }
# plan: sets what case $n is. Each place, and each kind at it, comes as often as any other.
plan() {
  place=${places[n % 5]} kind=${kinds[(n / 5 + n % 5) % 4]}
  rank=$(draw rank 4) nodes=$((1 + $(draw nodes 2))) learned=$(draw learned 2) restart=0 nth=1
  case $place in
  load | save) nth=$((1 + $(draw nth 12))) ;;
  forward | backward) nth=$((1 + $(draw nth 60))) ;;
  esac
  # Of loads and of first collectives, a bound is learned in the generation before.
  case $place in load | collective) restart=$learned ;; esac
  run=$WORK/$n/tiny
}
words() { echo "case $n of seed $seed: $kind in $place, rank $rank of $nodes node(s), sign $nth, bound $([ "$learned" = 1 ] && echo learned || echo "$limit s")"; }

# start: the job of the case, an agent for each of its nodes
start() {
  local node at=$place options=(--set train.steps=1000000 --set run.dir="$WORK/$n" --max-restarts $restart --nproc-per-node $((4 / nodes)))
  case $place in
  save) at=saving options+=(--set checkpoint.every=1 --set checkpoint.keep=1 --set checkpoint.async=false) ;;
  load) at=loading ;;&
  *) options+=(--set checkpoint.every=1000000) ;;
  esac
  [ "$learned" = 1 ] || options+=(--set launch.hang_timeout_s=$limit)
  [ "$learned$restart" = 10 ] && export STOP_GO=$WORK/$n/go
  [ "$nodes" = 1 ] || options+=(--nnodes 2 --rdzv-endpoint 127.0.0.1:$((ports[n / 100] + n % 100)) --insecure)
  for ((node = 0; node < nodes; node++)); do
    begin "$n-$node" timeout -k 5 600 env STOP_AT=$at:$rank:$restart STOP_BY=$kind STOP_NTH=$nth STOP_FIFO="$WORK/fifo" \
      STOP_NOTE="$WORK/$n/note" LD_PRELOAD="$TOY/stop_at" "$BIN/fsdprun" $([ "$nodes" = 1 ] || echo --node-rank $node) job.yaml "${options[@]}"
  done
}
# has_learned: does each node have the bounds of steps; of saves, where they are to hang?
has_learned() {
  grep "\"event\": \"hang_bounds\".*\"collective\":$([ $place = save ] && echo '.*"save":')" "$run/events.jsonl" > "$n/learned"
  lines "$n/learned" "$nodes"
} 2> /dev/null
has_stopped() { lines "$n/note" 1; } 2> /dev/null
# reaches COMMAND: waits until the job is so far; false if it ends before
reaches() { wait_until 20 eval "$1 || [ -e $n-0.rc ]" && "$1"; }
hang() {
  local i
  mkdir "$n"
  case $place in load) cp -r base "$n/tiny" ;; esac
  start
  if [ "$learned" = 1 ]; then
    reaches has_learned || return
    if [ "$restart" = 1 ]; then kill -KILL "$(pid_of "$run" 0 $(((rank + 1) % 4)))"; else touch "$n/go"; fi
  fi
  reaches has_stopped || return
  [ $kind != outside ] || kill -STOP "$(cut -d ' ' -f 2 "$n/note")"
  for ((i = 0; i < nodes; i++)); do ended "$n-$i"; done
}

# wrong: what is not as it should be, as words of the table's columns
wrong() {
  local stopped= pid= layer= event row
  read -r stopped pid layer < "$n/note"
  event=$(grep '"event": "hang"' "$run/events.jsonl")
  row=$(sed -n '/"rows":\[/{s/.*"rows":\[//;s/"kernel":.*//;p}' "$run/errors.json")
  [[ $event == *"\"rank\": $rank, "* && $row == "{\"ranks\":\"$rank\",\"culprit\":true,"* ]] &&
    cat "$n"-?.out | grep -A 2 "^fsdprun: rank $rank made no progress for" | grep -qE "^  $rank  +$place" || echo rank
  case $place in forward | backward) ;; *) layer= ;; esac
  [[ $event == *"\"phase\": \"$place\", "*${layer:+"\"layer\": \"$layer\""}* && $row == *"\"phase\":\"$place\","*${layer:+"\"layer\":\"$layer\""}* ]] || echo place
  case $kind in
  outside) [[ $row == *'"state":"T"'* ]] ;;
  lock) [[ $row == *'"syscall":"futex"'* ]] ;;
  socket) [[ $row == *'"syscall":"read","file":"socket:'* ]] ;;
  fifo) [[ $row == *"\"syscall\":\"read\",\"file\":\"$WORK/fifo\""* ]] ;;
  esac || echo shown
  # The moment of the verdict, and of the last sign of life, which was a moment before the rank hung.
  awk -v at="$(number time <<< "$event")" -v since="$stopped" -v bound="$(number bound_s <<< "$event")" \
    -v least="$([ "$learned" = 0 ] && echo "$limit" || echo 10)" -v most="$([ "$learned" = 0 ] && echo "$limit" || echo 599)" \
    'BEGIN { late = at - since - bound; if (at == "" || bound < least || bound > most || late < -1 || late > 1) print "late"; print late " s" > "/dev/stderr" }' 2> "$n/late"
}
# one: the case $n. Leaves a line in its verdict: kind, place, what is wrong, how late.
one() {
  plan
  hang
  rm -f "$n"-?.pid # there is nothing left to end
  { echo "$kind $place $(wrong | xargs | tr ' ' , | grep . || echo -) $(cat "$n/late")"; } > verdict.$n 2> "$n/err"
}

echo "# seed $seed, limit $limit s, $at_once at a time"
run_job base.log job.yaml --set train.steps=5 --nproc-per-node 4
check_eq "what is loaded is saved: 0" 0 $?
mv runs/tiny base
numbers=$(seq 0 $((hangs - 1)))
n_running=0
for n in ${HANGS_CASE:-$numbers}; do
  [ $n_running -lt "$at_once" ] || wait -n
  [ $n_running -ge "$at_once" ] || n_running=$((n_running + 1))
  one &
done
wait
# What was wrong, with what it takes to see it again.
for n in ${HANGS_CASE:-$numbers}; do
  [ "$(cut -d ' ' -f 3 verdict.$n)" != - ] || continue
  plan
  echo "# $(words): wrong: $(cat verdict.$n)"
  { cat "$n/err" "$n/note"; grep '"event": "hang' "$n/tiny/events.jsonl"; sed -n 's/.*"rows":/rows: /p' "$n/tiny/errors.json"
    tail -n 12 "$n"-?.out; } 2> /dev/null | cut -c 1-400 | sed 's/^/#   /'
done
cat verdict.* > verdicts
awk '{ at = $1 " " $2; n[at]++; if ($4 + 0 > latest[at]) latest[at] = $4 + 0
       split($3, wrong, ","); for (i in wrong) bad[at, wrong[i]]++ }
     END { for (at in n)
             printf "# %-22s %6d %6d %6d %6d %6d %7.3f s\n", at, n[at], n[at] - bad[at, "rank"], n[at] - bad[at, "place"],
               n[at] - bad[at, "shown"], bad[at, "late"], latest[at] }' verdicts | sort > table
printf '# %-22s %6s %6s %6s %6s %6s %9s\n' "kind and place" cases rank place shown late latest
cat table
# share WORD: per cent of the cases in which this is not wrong
share() { awk -v word="$1" '!index("," $3 ",", "," word ",") { n++ } END { print (NR ? int(100 * n / NR) : 0) }' verdicts; }
check_eq "every hang was tried" "$(wc -w <<< "${HANGS_CASE:-$numbers}")" "$(wc -l < verdicts)"
check "the right rank is named first in 98 % ($(share rank) %)" [ "$(share rank)" -ge 98 ]
check "at the right layer, or in the right phase, in 98 % ($(share place) %)" [ "$(share place)" -ge 98 ]
check "where it waits is shown in 98 % ($(share shown) %)" [ "$(share shown)" -ge 98 ]
check_eq "none later than a second after its bound" 0 "$(grep -c late verdicts)"
