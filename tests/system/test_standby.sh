# Workers on standby (--standby): a restart takes them instead of executing others, trains as an undisturbed
# run does, and nothing of them is left at the end.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
RUN=$WORK/runs/tiny
launcher=
at_exit() { [ -z "$launcher" ] || kill -KILL "$launcher" 2> /dev/null; }
start() { "$BIN/fsdprun" "$WORK/job.yaml" --set train.steps=100000 --set run.log_every=1 "$@" > "$WORK/log" 2>&1 < /dev/null & launcher=$!; }
# at_gate: the processes of the agent that wait at their gate, or have waited; waiting N: are they N?
at_gate() { pgrep -P "$(pgrep -P "$launcher")" -f 'fsdp-train --gate$'; }
waiting() { [ "$(at_gate | wc -l)" = "$1" ]; }

start --standby 2
check "two workers wait as soon as the job trains" wait_until 20 waiting 2
gates=$(at_gate | xargs)
kill -KILL "$(pid_of "$RUN" 0 1)"
check "a rank is killed, and the job goes on" wait_until 20 has_logged "$RUN" 1 2
check_eq "the workers that waited are its ranks" "$gates" "$(pid_of "$RUN" 1 0) $(pid_of "$RUN" 1 1)"
check_eq "the events say so" 2 "$(grep -c '"standby": *true' "$RUN/events.jsonl")"
check_match "their output goes to the logs of the generation" 'parameters, 2 ranks' "$(cat "$RUN/logs/g1/rank0/stdout.log")"
check "two others wait for the next restart" wait_until 20 waiting 4

# One of them is killed while it waits: its rank is executed.
victim=$(at_gate | grep -vwE "${gates// /|}" | head -n 1)
kill -KILL "$victim"
wait_until 20 sh -c "! kill -0 $victim 2> /dev/null"
kill -KILL "$(pid_of "$RUN" 1 0)"
check "one that dies at its gate is missed by no rank" wait_until 20 has_logged "$RUN" 2 2
check_eq "one rank had waited, the other is executed" 3 "$(grep -c '"standby": *true' "$RUN/events.jsonl")"

# A restart of the same size trains as an undisturbed run.
last=$(number step < "$RUN/metrics.jsonl" | sort -n | tail -n 1)
all=$(at_gate | xargs)
kill -TERM "$launcher"
wait "$launcher"
check_eq "the job is stopped" 143 $?
launcher=
check_eq "none of them is left" "" "$(ps -o pid= -p "${all// /,}")"
run_job "$WORK/calm.log" "$WORK/job.yaml" --set run.name=calm --set train.steps="$last"
figures "$RUN" | awk -v last="$last" '$1 <= last' | sort > "$WORK/ours"
figures "$WORK/runs/calm" | sort > "$WORK/calm"
check "the figures are those of an undisturbed run ($last steps)" cmp "$WORK/ours" "$WORK/calm"

# The agent is killed: the kernel takes those that wait along.
start --standby 2 --set run.name=killed
RUN=$WORK/runs/killed
check "they wait again" wait_until 20 waiting 2
gates=$(at_gate | xargs)
kill -KILL "$(pgrep -P "$launcher")"
wait "$launcher"
launcher=
check_eq "the agent is killed: none of them is left" "" "$(ps -o pid= -p "${gates// /,}")"

check_status "a program has none" 2 "$BIN/fsdprun" --standby 1 -- "$TOY/toy" exit=0
check_match "and is told why" "\-\-standby is for job files" "$(cat "$WORK/err")"
check_status "more than the node has ranks are refused" 2 "$BIN/fsdprun" --standby 3 "$WORK/job.yaml"
