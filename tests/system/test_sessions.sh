# Two hosts in network namespaces that need each other, and no restart is allowed: a reset connection, a short
# cut and an agent that stands still for a while cost nothing. Longer ones: test_fencing.sh, test_elastic_partition.sh.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { netns_down; }
netns_up || { skip "sessions" "needs root, ip and nft for network namespaces"; exit 0; }

toy_agents
new_secret secret
# On a machine that is slow now, all times are longer.
pace=$(pace)

# start NODE NAME OPTIONS...
start() {
  local node=$1 name=$2; shift 2
  begin "$name" on_node "$node" timeout -k 5 1200 "$RUN" --nnodes 2 --node-rank "$node" \
    --rdzv-endpoint 10.77.77.1:$port --rdzv-conf lease=$((4 * pace)) "$@"
}
# world NAME OPTIONS...: NAME0 and NAME1, as soon as a worker of each runs
world() {
  local name=$1 node; shift
  port=$((port + 1))
  for node in 0 1; do
    start "$node" "$name$node" "$@" -- "$TOYW" touch="$name.started" wait="$name.go"
  done
  wait_until 30 lines "$name.started" 2 || not_ok "the world forms" "$(cat "${name}0.out" "${name}1.out")"
}
resumed() { has "$1" "link to .* was interrupted for .* and goes on"; }
# goes_on TITLE NAME: the world ends well, in its first generation
goes_on() {
  touch "$2.go"
  check_ends "$1" "0 0" "${2}0" "${2}1"
  check_eq "... and no worker was started again" 2 "$(wc -l < "$2.started")"
}

for how in "--secret-file secret" --insecure; do
  world a $how
  if reset_link "$port"; then
    for node in 0 1; do check "a reset connection ($how): node $node says that it goes on" wait_until 10 resumed a$node; done
  else
    skip "a reset connection" "ss -K closes no sockets here"
  fi
  goes_on "a reset connection ($how) costs nothing" a
  rm -f a.*
done
for seconds in 0.5 $((2 * pace)); do
  world b --secret-file secret
  cut_for "$seconds"
  goes_on "a cut of $seconds s costs nothing" b
  rm -f b.*
done
# TCP's own retry cannot save this one.
world b --secret-file secret
cut_link
pass $((2 * pace))
reset_link "$port"; broken=$?
heal_link
[ $broken != 0 ] || check "a connection that breaks in a cut: the nodes say that they go on" wait_until 10 resumed b0
goes_on "a connection that breaks in a cut costs nothing" b
rm -f b.*

for who in "stand_still c0" "stand_still c1" "stand_still c0 c1" "press_ctrl_z c1" "press_ctrl_z c0 c1"; do
  world c --secret-file secret
  ${who%% *} 2 ${who#* }
  goes_on "2 s of standing still ($who) cost nothing" c
  rm -f c.*
done

# A job, whose ranks send messages over the link all the time.
tiny_job job.yaml
job() { # NAME
  local node
  port=$((port + 1))
  for node in 0 1; do
    start "$node" "$1-$node" --secret-file secret job.yaml --set run.name="$1" --set train.steps=60 --set checkpoint.every=1 --max-restarts 0
  done
}
job calm
check_ends "a job over two nodes ends with 0" "0 0" calm-0 calm-1
job shaken
for step in 5 15 25; do
  wait_until 120 has_logged "$WORK/runs/shaken" 0 "$step"
  reset_link "$port"
done
check_ends "with three resets on the way it ends with 0 too" "0 0" shaken-0 shaken-1
check_eq "every figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$WORK/runs/shaken")"
check_eq "and every step was published" "$(cd runs/calm/checkpoints && ls)" "$(cd runs/shaken/checkpoints && ls)"
check_eq "without a restart" 0 "$(grep -c '"event": *"restart"' "$WORK/runs/shaken/events.jsonl")"
