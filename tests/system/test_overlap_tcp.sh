#!/usr/bin/env bash
# Between hosts a second thread gathers and reduces while the first computes: the same bits, and no slower a step.
# Alone
. tests/support/harness.sh
. tests/support/netns.sh
. tests/support/train.sh
at_exit() { netns_down; }
[ "$(nproc)" -ge 4 ] || { skip "overlap over TCP" "$(nproc) cores: a rank needs one for each of its threads, hence 4"; exit 0; }
netns_up || { skip "overlap over TCP" "needs root, ip and nft for network namespaces"; exit 0; }
cat > "$WORK/job.yaml" << EOF
run:        {name: tcp, dir: $WORK/runs, log_every: 1}
launch:     {nproc_per_node: 1, threads: 1}
data:       {path: $SOURCE/tests/parity/excerpt.txt}
model:      {layers: 6, dim: 256, heads: 4, vocab: 256, seq: 32}
train:      {steps: 12, batch: 8}
checkpoint: {every: 0}
EOF
head -c 32 /dev/urandom | base64 > "$WORK/secret"; chmod 600 "$WORK/secret"
port=$(port_block)

# run NAME OVERLAP: one rank on each of two nodes, to its end
run() {
  local node pids=()
  port=$((port + 1))
  for node in 0 1; do
    on_node $node timeout -k 5 2000 "$BIN/fsdprun" --nnodes 2 --node-rank $node --rdzv-endpoint 10.77.77.1:$port \
      --secret-file "$WORK/secret" "$WORK/job.yaml" --set "run.name=$1" --set "parallel.overlap=$2" > "$WORK/$1-$node.out" 2>&1 < /dev/null &
    pids+=($!)
  done
  wait "${pids[0]}" && wait "${pids[1]}" || { tail -n 5 "$WORK/$1"-*.out; return 1; }
}
# The fastest step of a run, after the first: what noise there is only adds.
fastest() { number step_s < "$WORK/runs/$1/metrics.jsonl" | tail -n +2 | sort -g | head -n 1; }

for i in 1 2 3; do
  check "inline, run $i" run "inline-$i" false
  check "with a second thread, run $i" run "beside-$i" true
done
check_eq "to the bit the same figures" "$(figures "$WORK/runs/inline-1")" "$(figures "$WORK/runs/beside-1")"
inline=$(for i in 1 2 3; do fastest "inline-$i"; done | sort -g | head -n 1)
beside=$(for i in 1 2 3; do fastest "beside-$i"; done | sort -g | head -n 1)
echo "# the fastest step: $inline s inline, $beside s with a second thread"
# Two threads for each of two ranks: on a machine that has other work, the second thread has no core of its own.
if [ "$(pace)" -gt 1 ]; then skip "the step is no slower" "the machine is busy"; else
check "the step is no slower" awk -v a="$inline" -v b="$beside" 'BEGIN { exit !(a > 0 && b > 0 && b <= 1.05 * a) }'
fi
[ "$n_failed" -eq 0 ]
