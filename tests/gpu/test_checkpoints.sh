# On a GPU: a run that begins on one device goes on from its checkpoint on the other, at another number of
# ranks, and has the losses of the stored reference to the end. Each run has its own bound.
. tests/support/shell/harness.sh
. tests/gpu/gpu.sh
cd "$WORK" || exit 1
reference=$SOURCE/tests/parity/reference/short.adamw.txt
settings=()
while read -r setting; do settings+=(--set "$setting"); done < <(sed -n 's/^set //p' "$reference")
# train NAME DEVICE RANKS STEPS: up to that many steps, from the last checkpoint of the run if it has one
train() {
  FSDP_DEVICE=$2 FSDP_COLLECTIVES=cpu at_most 25 "$BIN/fsdprun" --nproc-per-node "$3" "$SOURCE/tests/parity/parity.yaml" "${settings[@]}" \
    --set "run.dir=$WORK" --set "run.name=$1" --set checkpoint.every=10 --set "train.steps=$4" > "$1.log" 2>&1 || { echo "status $?"; tail -n 5 "$1.log"; return 1; }
  grep -q "a step, $2[, ]" "$1.log" || { echo "it did not run on $2"; return 1; }
}
# exchange FROM RANKS TO RANKS
exchange() {
  train "$1-$3" "$1" "$2" 10 && train "$1-$3" "$3" "$4" 20 || return 1
  grep -q 'resuming after step 10 ' "$1-$3.log" || { echo "it did not go on from the checkpoint"; return 1; }
  "$TOY/parity_compare" steps "$reference" "$1-$3/metrics.jsonl"
}
check "a checkpoint of the cpu, 2 ranks, goes on on cuda, 1 rank" exchange cpu 2 cuda 1
check "a checkpoint of cuda, 2 ranks, goes on on the cpu, 1 rank" exchange cuda 2 cpu 1
[ "$n_failed" -eq 0 ]
