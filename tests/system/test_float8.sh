# parallel.float8_gather, through fsdprun: what its plan says; the same first loss at every world size; losses
# near those of bfloat16. A run goes on bit for bit, and a checkpoint knows nothing of it.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
FLOAT8="--set parallel.float8_gather=true"
# train NAME SETTING...
train() {
  local name=$1 sets=(); shift
  for setting in "$@"; do sets+=(--set "$setting"); done
  run_job "$WORK/$name.log" "$WORK/job.yaml" --set "run.name=$name" "${sets[@]}" || { tail -n 5 "$WORK/$name.log"; return 1; }
}

# --- the plan. To the byte its traffic is held by the unit tests plan_float8.
plan() { "$BIN/fsdprun" plan --json "$WORK/job.yaml" --set checkpoint.every=0 "$@"; }
plan > "$WORK/plain.json"
check_eq "without it nothing is agreed on" 0 "$(number all_reduce < "$WORK/plain.json")"
cat > "$WORK/groups.yaml" << EOF
$(cat "$WORK/job.yaml")
parallel:   {groups: [{modules: layers.1, float8_gather: true}, {modules: layers.0}]}
EOF
of_one=$("$BIN/fsdprun" plan --json "$WORK/groups.yaml" | number all_gather)
whole=$(number all_gather < "$WORK/plain.json") all=$(plan $FLOAT8 | number all_gather)
check "less than half is gathered, and sizes are agreed on" \
  test "$((2 * all))" -lt "$whole" -a "$(plan $FLOAT8 | number all_reduce)" -gt 0
check "a group of its own saves its own share" test "$of_one" -lt "$whole" -a "$of_one" -gt "$all"

# --- training
for W in 1 2 3; do check "W=$W trains" train "w$W" "launch.nproc_per_node=$W" train.batch=12 parallel.float8_gather=true; done
first() { figures "$WORK/runs/$1" | head -n 1 | cut -d ' ' -f 1,2; }
# In the order of sums alone worlds differ before the first update: 1e-6 of a loss.
for W in 2 3; do
  check_eq "W=$W: the first loss is that of one rank" same \
    "$(echo "$(first w1) $(first "w$W")" |
    awk '{ d = ($2 - $4) / $2; print (d < 1e-6 && d > -1e-6 ? "same" : $0) }')"
  check "W=$W: the others are near" close_figures "$WORK/runs/w1" "$WORK/runs/w$W" 1 2e-2
done
check "bfloat16 without it trains" train bf16 parallel.param_dtype=bfloat16
check "and with it" train bf16-float8 parallel.param_dtype=bfloat16 parallel.float8_gather=true
check "losses stay within 3 % of those of bfloat16" close_figures "$WORK/runs/bf16" "$WORK/runs/bf16-float8" 1 3e-2
check "which are not the same" test "$(figures "$WORK/runs/bf16")" != "$(figures "$WORK/runs/bf16-float8")"

# --- master weights are what is saved
check "ten steps" train halves train.steps=10 train.batch=12 parallel.float8_gather=true
check "and ten more" train halves train.batch=12 parallel.float8_gather=true
check_eq "a run that went on has the bits of one that did not" "$(figures "$WORK/runs/w2")" "$(figures "$WORK/runs/halves")"
check_eq "and its last checkpoint the same tensors" "$(payloads "$WORK/runs/w2/checkpoints/step-00000020")" \
  "$(payloads "$WORK/runs/halves/checkpoints/step-00000020")"
shard() { wc -c < "$WORK/runs/$1/checkpoints/step-00000020/shard-00001-model-00001-of-00001.safetensors"; }
check_eq "of the sizes that they have without" "$(shard bf16)" "$(shard bf16-float8)"
check "it goes on without float8, on another number of ranks" train halves train.steps=22 launch.nproc_per_node=3 parallel.float8_gather=false
check_match "from where it was" 'step 22/22' "$(cat "$WORK/halves.log")"

check_status "a key that is no flag" 78 "$BIN/fsdprun" plan "$WORK/job.yaml" --set parallel.float8_gather=e4m3
check_match "is named" 'parallel.float8_gather' "$(cat "$WORK/err")"
