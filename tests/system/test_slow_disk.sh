# Two nodes whose run ends while their disks still have lines to take: disks that are slow, full or stuck.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1

# both NAME VARIABLES ARGS...: two agents with six workers each, which print a line of five bytes and do $does.
# The variables (NAME=VALUE ...) say what their disks are like.
does=
port=$(port_block)
both() {
  local name=$1 variables=$2 node; shift 2
  port=$((port + 1))
  for node in 0 1; do
    # shellcheck disable=SC2086 # the variables and what is done are words
    begin "$name-$node" env LD_PRELOAD="$TOY/slow_disk" $variables timeout -k 5 600 "$BIN/fsdprun" --nnodes 2 \
      --node-rank $node --nproc-per-node 6 --rdzv-endpoint 127.0.0.1:$port --insecure --run-dir "$WORK/$name" "$@" \
      -- "$TOY/toy" say=said $does
  done
}
# say NAME WORDS: how many of its two agents print a line that begins with these words?
say() { cat "$1"-?.out | grep -c "^fsdprun: $2"; }

# The runs wait rather than compute, so they go on at the same time. With MALLOC_PERTURB_ an agent that uses
# memory after it has freed it does not get far.
both slow "SLOW_DISK=stdout.log SLOW_MS=1500" --redirects 3
both full "SLOW_DISK=stdout.log SLOW_MS=500 SLOW_FULL=1" --redirects 3
both events "SLOW_DISK=events.jsonl SLOW_MS=300 SLOW_FULL=1" --redirects 3
both stuck "SLOW_DISK=stdout.log SLOW_MS=6000000" --redirects 3
both event "SLOW_DISK=events.jsonl SLOW_MS=6000000" --redirects 3
both late "SLOW_DISK=stdout.log SLOW_UNTIL=leaving MALLOC_PERTURB_=90" --tee 3
does=exit=3
both report "SLOW_DISK=errors.json SLOW_MS=6000000" --redirects 3
both refused "SLOW_DISK=errors.json SLOW_FULL=1" --redirects 3

# Each of the six lines takes 1.5 s: all of them take longer than a disk may be silent.
check_ends "disks that are slow end no run" "0 0" slow-0 slow-1
check_eq "and are waited for as long as they go on" 12 "$(cat slow/attempt_0/*/stdout.log | grep -c '^said$')"
check_eq "nothing is lost then" 0 "$(say slow '.* lost')"

check_ends "disks that are full end no run" "0 0" full-0 full-1
check_eq "what they refuse last is counted, too" 2 \
  "$(say full '30 bytes of output were lost: a log file could not be written')"

# All lines but the first are one job for the disk, which takes longer than a disk may be silent.
check_ends "events that a disk refuses end no run" "0 0" events-0 events-1
check_eq "and are counted to the last" 1 "$(say events '24 lines of events.jsonl were not written')"

check_ends "disks that never answer end no run" "0 0" stuck-0 stuck-1
check_eq "the agents leave without them" 2 "$(say stuck 'the disk does not answer; leaving without it')"
check_eq "and count what is not written" 2 "$(say stuck '30 bytes of output were lost: the disk did not take them')"

check_ends "events that a disk never takes end no run" "0 0" event-0 event-1
check_eq "and are counted" 1 "$(say event '24 lines of events.jsonl were not written')"

check_ends "disks that answer while they are given up end no run" "0 0" late-0 late-1

# The coordinator's node writes errors.json. It goes on meanwhile, so the other node learns how the run ended.
check_ends "a report that a disk never takes is missed by no node" "3 3" report-0 report-1
check_eq "and is not named" 0 "$(cat report-?.out | grep -c 'more in .*errors.json')"
check_ends "a report that a disk refuses, neither" "3 3" refused-0 refused-1
check_eq "that is said" 1 "$(say refused 'write .*errors.json: No space left on device')"
check_eq "and the report is not named" 0 "$(cat refused-?.out | grep -c 'more in .*errors.json')"
