# A busy machine raises no false alarm. Bursts of other work come and go, and no rank is said to hang, and no node
# to be lost, because it had to wait for its turn.
# Nightly: faults
# Alone
# Limit: 9000 s
#
# There are three jobs: one of two ranks on one node, one of two nodes, and a program under --hang-timeout.
# BUSY_S is how long it lasts: 90 s, and 7,200 s by `make false-alarms`. BUSY_SEED draws the bursts. With
# BUSY_LOAD=0 there are none: something else keeps the machine busy.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; touch "$WORK/over"; wait; }
cd "$WORK" || exit 1
tiny_job job.yaml
busy_s=${BUSY_S:-90} seed=${BUSY_SEED:-$(date +%s)}
RANDOM=$((seed % 32768))
port=$(port_block)
new_secret secret

# job NAME OPTION...: training that saves and takes snapshots for as long as it may
job() {
  begin "$1" timeout -k 20 $((busy_s + 1800)) "$BIN/fsdprun" "${@:2}" job.yaml --set run.name="${1%-?}" --set train.steps=99999999 \
    --set model.dim=56 --set model.heads=4 --set run.log_every=20 --set checkpoint.every=500 --set checkpoint.snapshot_every=20 --max-restarts 0
}
# burst: other work for 5 to 34 s: up to six processes that compute, write and sync, or fill memory
burst() {
  local n=$((1 + RANDOM % 6)) seconds=$((5 + RANDOM % 30)) i
  for ((i = 0; i < n; i++)); do
    case $((RANDOM % 4)) in
    0 | 1) timeout "$seconds" sha1sum /dev/zero ;;
    2) timeout "$seconds" sh -c 'while :; do dd if=/dev/zero of="$0" bs=1M count=64 oflag=sync; done' "burst.$i" ;;
    3) timeout "$seconds" sh -c 'while :; do head -c 300M /dev/zero | sort -z; done' ;;
    esac > /dev/null 2>&1 &
  done
  wait $(jobs -p | tail -n "$n")
}
bursts() {
  until [ -e over ]; do
    burst
    read -r -t $((RANDOM % 10)) <> <(:) || :
  done
}
events() { cat runs/*/events.jsonl | grep -cE "\"event\": \"($1)\""; }
step() { sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "runs/$1/metrics.jsonl" | tail -n 1; }
has_ended() { local file; for file in *.rc; do [ ! -e "$file" ] || return 0; done; return 1; }
learned_or_over() { has_learned "$1" || has_ended; }
has_learned() { grep -q '"event": "hang_bounds".*"collective":' "runs/$1/events.jsonl"; }

echo "# seed $seed, $busy_s s"
job alone --nproc-per-node 2
for node in 0 1; do
  job "nodes-$node" --set launch.threads=1 --nproc-per-node 1 --nnodes 2 --node-rank $node --rdzv-endpoint 127.0.0.1:"$port" --secret-file secret
done
begin program timeout -k 20 $((busy_s + 1800)) "$FSDPRUN" --nproc-per-node 2 --hang-timeout 15 -- \
  bash -c 'while echo beat; do read -r -t 1 _ || :; done <> fifo'
mkfifo fifo
for name in alone nodes; do check "$name: bounds are learned" eval "wait_until 30 learned_or_over $name && has_learned $name"; done
[ "${BUSY_LOAD:-1}" = 0 ] || bursts &
first="$(step alone) $(step nodes)"
# This loop starts no process. With hundreds a second their numbers would come round in minutes, and bash would wait for
# one that it has not started.
mkfifo clock
exec {clock}<> clock
over_at=$((EPOCHSECONDS + busy_s))
while [ "$EPOCHSECONDS" -lt $over_at ] && ! has_ended; do
  read -r load _ < /proc/loadavg
  echo "$load" >> loads
  read -r -t 1 -u "$clock" || :
done
touch over
echo "# load: $(sort -n loads | awk '{ l[NR] = $1 } END { print l[1], "at least,", l[int((NR + 1) / 2)], "in the median,", l[NR], "at most" }')"
echo "# steps: $first at first, $(step alone) $(step nodes) at last; $(grep -c beat program.out) beats of the program"
check_eq "no job has ended" "none none none none" "$(rcs alone nodes-0 nodes-1 program)"
check_eq "no rank was said to hang" 0 "$(events hang)"
check_eq "no node was lost, and none leads in another's place" 0 "$(events 'takeover|quarantine|failure|restart')"
check_eq "each rank was started once" 4 "$(events spawn)"
check "both went on to the end" [ "$(step alone)" -gt "${first% *}" -a "$(step nodes)" -gt "${first#* }" ]
echo "# stragglers reported: $(events straggler)"
for name in alone nodes-0 program; do signal $name TERM; done
check_ends "all end when they are told" "143 143 143 143" alone nodes-0 nodes-1 program
