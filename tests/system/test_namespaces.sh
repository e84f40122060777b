# 2, 3 and 5 agents in network namespaces run a job of ours (--nnodes 1:N, ten steps a second), and faults
# happen to them again and again. Prints a table with a row for each number of agents, arbiter and fault. Did
# the job continue? For how long did it make no step? Which restarts should the fault not have cost? Of how
# many generations were ranks alive at a time? With arguments, N FAULT [ARBITER], this row alone.
# Nightly: faults
# FSDP_TEST_FAULTS: how often each fault happens; 3, and 50 in `make nightly`
# FSDP_TEST_ROWS: how many rows are measured at a time; 6, and 10 in `make nightly`. They wait rather than compute.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
. tests/support/shell/disk.sh
. tests/support/shell/etcd.sh
at_exit() { thaw; netns_down; disk_down; } 2> /dev/null
netns_up 3 || { skip "faults in namespaces" "needs root, ip, nft and bridges for network namespaces"; exit 0; }
netns_down

# What each fault is called, how many generations it costs, with which arbiters it happens, and what it is. A member is
# an agent that does not host.
# Every agent always reaches the directory: a host that is cut off goes on alone. The etcd is in a namespace of its own,
# so that host cannot reach it, and another one leads.
# The etcd is there for the faults that lose a node, a side of the network, packets or the arbiter. In the others the
# leader only renews its record, except in member-stops, which is to the arbiter what minority is.
faults() {
  cat << 'FAULTS'
brief-cut           0 directory      a member is cut off for 0.5 s
cut                 0 directory      a member is cut off for the lease less 0.5 s
reset               0 directory      the connection of a member is reset
member-waits        0 directory      the agent of a member stands still for 2 s
host-waits          0 directory      the agent of the host stands still for 2 s
host-busy           0 directory      the loop of the host's agent stands still for two leases, and its threads go on
disk                0 directory      the run directory stands still for the lease and 2 s
loss                0 directory,etcd 5 % of the packets are lost for 5 s
arbiter-unreachable 0 directory,etcd the arbiter alone is out of reach for two leases
killed              1 directory,etcd a member is killed
minority            1 directory,etcd members, half of the nodes at most, are cut off
member-stops        1 directory      the agent of a member stands still for two leases
host-stops          1 directory,etcd the agent of the host stands still for two leases, and another one leads meanwhile
host-cut            1 directory,etcd the host is cut off
host-killed         1 directory,etcd the host is killed, and another one leads
FAULTS
}
if [ -n "${FSDP_NIGHTLY:-}" ]; then times=50 rows=10; else times=3 rows=6; fi

# Everything: each row by a process of its own, and a line of the table from each.
if [ $# -eq 0 ]; then
  export FSDP_TEST_TABLE=$WORK/table FSDP_TEST_FAULTS=${FSDP_TEST_FAULTS:-$times}
  arbiters=(directory)
  if command -v etcd > /dev/null; then arbiters+=(etcd); else skip "faults with an etcd" "$etcd_needs"; fi
  # The long rows first, so that none of them is alone in the end.
  faults | tac | while read -r fault _ with _; do
    for arbiter in "${arbiters[@]}"; do
      [[ $with != *$arbiter* ]] || printf '%s\n' {5,3,2}" $fault $arbiter"
    done
  done |
    xargs -P "${FSDP_TEST_ROWS:-$rows}" -L 1 bash tests/system/test_namespaces.sh || n_failed=1
  echo "# | agents | arbiter | fault | lease | continued | no step for: p50 | p99 | restarts too many | generations alive at a time |"
  sort -n -k 1,1 -k 2,2 "$FSDP_TEST_TABLE" | sed 's/^[0-9]* [0-9]* /# /'
  exit
fi

n=$1 fault=$2 arbiter=${3:-directory} last=$(($1 - 1)) port=29400
read -r _ costs _ words < <(faults | grep "^$fault ")
row="$n agents, $arbiter, $words"
times=${FSDP_TEST_FAULTS:-$times}
lease=$((3 * $(pace)))
place=$WORK
case "$fault $arbiter" in
disk* | "arbiter-unreachable directory") disk_up > /dev/null 2>&1 || { skip "$row" "$disk_needs"; exit 0; } ;;
*etcd) command -v etcd > /dev/null || { skip "$row" "$etcd_needs"; exit 0; } ;;
esac
[ "$fault" != disk ] || place=$disk

# The workers, by the name of fsdp-train: each holds a lock on a file of its own until the kernel has ended it. At its
# start it notes which others are alive.
mkdir "$WORK/bin"
cp "$BIN/fsdprun" "$WORK/bin"
cat > "$WORK/bin/fsdp-train" << 'TRAIN'
#!/usr/bin/env bash
exec 9> "alive/$$"
flock 9
for other in alive/*; do
  [ "$other" = "alive/$$" ] || flock -n -s "$other" true || echo "$$ ${other#*/}" >> beside
done
exec "$FSDP_TEST_TRAIN" "$@"
TRAIN
chmod +x "$WORK/bin/fsdp-train"
export FSDP_TEST_TRAIN=$TOY/fsdp_train_mutant FSDP_TEST_SLOW=data:0:100,data:1:100,data:2:100,data:3:100,data:4:100
tiny_job "$WORK/job.yaml"
new_secret "$WORK/secret"

# A world: the agents n0, which hosts, to n$last in a folder of its own. An etcd is one host more, $n.
worlds=0 up=
begin_world() {
  local i agent=() decides=directory
  worlds=$((worlds + 1)) up=yes from=0 until=0
  RUN=$place/$worlds/tiny
  mkdir -p "$WORK/$worlds/alive" "$place/$worlds"
  cd "$WORK/$worlds" || exit 1
  if [ "$arbiter" = etcd ]; then
    decides=etcd://10.77.77.$((n + 1)):2379
    netns_up $((n + 1)) && etcd_up "10.77.77.$((n + 1))" 2379 on_node "$n" || return 1
  else
    netns_up "$n" || return 1
  fi
  # The record alone is on the disk that will stand still. Each agent mounts it for itself: on_node gives it mounts of
  # its own.
  if [ "$fault $arbiter" = "arbiter-unreachable directory" ]; then
    mkdir -p "$RUN/leader" "$disk/$worlds"
    agent=(bash -c 'mount --bind "$0" "$1" && exec "${@:2}"' "$disk/$worlds" "$RUN/leader")
  fi
  for ((i = 0; i < n; i++)); do
    begin "n$i" on_node "$i" "${agent[@]}" timeout -k 5 1200 "$WORK/bin/fsdprun" --nnodes "1:$n" --rdzv-backend c10d \
      --rdzv-endpoint "10.77.77.1:$port" --secret-file "$WORK/secret" --rdzv-conf lease=$lease ../job.yaml \
      --arbiter "$decides" --nproc-per-node 1 --set run.dir="$place/$worlds" --set launch.threads=1 --set train.steps=1000000 \
      --set train.global_batch=60 --set model.layers=1 --set model.seq=4
  done
  wait_until 60 goes_on 0
}
# together: pairs of ranks of two generations that were alive at a time
together() {
  local pid other
  while read -r pid other; do
    [ "$(generation_of "$pid")" = "$(generation_of "$other")" ] || echo "$pid $other"
  done < beside
}
generation_of() { grep '"event": *"spawn"' "$RUN/events.jsonl" | grep -E "\"pid\": *$1[,}]" | number generation; }
end_world() {
  [ -n "$up" ] || return 0
  # Those of one generation are seen, or this shows nothing.
  [ "$(wc -l < beside)" -ge $((n * last / 2)) ] || not_ok "$row: the ranks see each other"
  beside=$((beside + $(together | wc -l)))
  netns_down
  wait
  up=
}

# seconds: now, as metrics.jsonl has it
seconds() { echo "${EPOCHREALTIME/,/.}"; }
# generation: of the last step
generation() { tail -n 1 "$RUN/metrics.jsonl" | number generation; }
# goes_on GENERATION: are there ten steps since $until, of this generation or a later one?
goes_on() {
  local lines=()
  pass 0.2 # a look five times a second is enough: the times are those of metrics.jsonl
  mapfile -t lines < <(tail -n 10 "$RUN/metrics.jsonl")
  [ "${#lines[@]}" = 10 ] &&
    [[ ${lines[0]} =~ \"generation\":\ *([0-9]+),.*\"time\":\ *([0-9.]+) ]] &&
    [ "${BASH_REMATCH[1]}" -ge "$1" ] && [ "${BASH_REMATCH[2]/./}" -gt "${until/./}" ]
}
# pause_of: the longest time without a step since $from, in seconds
pause_of() {
  number time < "$RUN/metrics.jsonl" | awk -v before="$from" '
    $1 > before { if ($1 - before > longest) longest = $1 - before; before = $1 }
    END { printf "%.2f\n", longest }'
}

# hurt: the fault, from beginning to end; `lost` are the nodes that it costs
hurt() {
  local node
  case $fault in
  brief-cut) cut_for 0.5 "$last" ;;
  cut) cut_for $((lease - 1)).5 "$last" ;;
  reset) reset_link $port ;;
  member-waits) stand_still 2 "n$last" ;;
  host-waits) stand_still 2 n0 ;;
  host-busy) "$TOY/busy_loop" "$(inner_of n0)" $((2 * lease)) ;;
  disk) freeze && pass $((lease + 2)) && thaw ;;
  arbiter-unreachable) if [ "$arbiter" = etcd ]; then cut_for $((2 * lease)) "$n"; else freeze && pass $((2 * lease)) && thaw; fi ;;
  loss) lose_packets 5 && pass 5 && keep_packets ;;
  killed) power_off "n$last" ;;
  minority) for node in "${lost[@]}"; do pull_cable "$node"; done ;;
  member-stops) stand_still $((2 * lease)) "n$last" ;;
  host-stops) stand_still $((2 * lease)) n0 ;;
  host-cut) pull_cable 0 ;;
  host-killed) power_off n0 ;;
  esac
}
# The nodes that are lost to the host, or it to them. When they can, they join again.
case $fault in
minority) lost=($(seq $((n - n / 2)) $last)) ;;
member-stops) lost=("$last") ;;
host-stops | host-cut) lost=($(seq $last)) ;;
*) lost=() ;;
esac
heal() {
  local node
  case $fault in
  minority) for node in "${lost[@]}"; do plug_cable "$node"; done ;;
  host-cut) plug_cable 0 ;;
  esac
}
# is_whole: has the last generation a rank of each node?
is_whole() {
  [ "$(grep '"event": *"spawn"' "$RUN/events.jsonl" | number generation | sort -n | uniq -c | awk '{ n = $1 } END { print n }')" = "$n" ]
}
# says NODE WORDS: does its agent say that it has lost the coordinator, and what it does?
says() { grep -qE "^fsdprun: .*the link to the coordinator, .*, was lost: .*$2" "n$1.out"; }
# answers: how often the leader has said that the arbiter answers again
answers() { grep -c "the arbiter ($arbiter) answers again" n0.out; }
answered() { [ "$(answers)" -gt "$n_answers" ]; }
# others_live: have no agents ended but those that were killed?
others_live() {
  local node
  for ((node = 0; node < n; node++)); do
    case "$fault $node" in "killed $last" | "host-killed 0") continue ;; esac
    [ ! -e "n$node.rc" ] || return 1
  done
}
n_continued=0 n_restarts=0 n_said=0 beside=0
: > "$WORK/pauses"
for ((i = 0; i < times; i++)); do
  [ -n "$up" ] || begin_world || { not_ok "$row: the world forms" "$(tail -n 5 n?.out)"; exit 1; }
  before=$(generation) n_answers=$(answers)
  from=$(seconds)
  hurt || { skip "$row" "this system cannot do that"; exit 0; }
  until=$(seconds)
  if wait_until 12 goes_on $((before + costs)) && others_live; then continued=1; else continued=0; fi
  made=$(($(generation) - before))
  most=$((costs + ${#lost[@]}))
  n_restarts=$((n_restarts + (made > most ? made - most : 0)))
  pause_of >> "$WORK/pauses"
  # Each node that comes again may cost a generation of its own.
  heal
  [ "$fault" != arbiter-unreachable ] || wait_until 30 answered || continued=0
  for node in "${lost[@]}"; do ! wait_until 30 says "$node" 'joins again$' || n_said=$((n_said + 1)); done
  [ ${#lost[@]} -eq 0 ] || wait_until 60 is_whole || continued=0
  n_continued=$((n_continued + continued))
  [ "$continued $made $costs" != "1 0 0" ] || continue
  [ $continued = 1 ] && [ $made -ge "$costs" ] && [ $made -le $most ] || { echo "# $row:"; sed 's/^/# /' n?.out | grep -v ': step '; }
  end_world
done
end_world

# quantile P: of the pauses
quantile() { sort -n "$WORK/pauses" | awk -v p="$1" '{ v[NR] = $1 } END { i = int(p * NR); print NR ? v[i < p * NR ? i + 1 : i] " s" : "-" }'; }
line="| $n | $arbiter | $words | $lease s | $n_continued of $times | $(quantile 0.5) | $(quantile 0.99) | $n_restarts | $((beside > 0 ? 2 : 1)) |"
if [ -n "${FSDP_TEST_TABLE:-}" ]; then
  echo "$n $(faults | grep -n "^$fault " | cut -d : -f 1) $line" >> "$FSDP_TEST_TABLE"
else
  echo "# $line"
fi
check_eq "$row: continued, restarts too many, pairs of ranks of two generations" \
  "$times of $times, 0, 0" "$n_continued of $times, $n_restarts, $beside"
check_eq "$row: who is lost says that it joins again" $((times * ${#lost[@]})) $n_said
