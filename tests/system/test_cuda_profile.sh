# FSDP_CUDA_PROFILE on the emulated device, whose times mean nothing: names, calls, bytes and operations are
# held against the plan, against what the device itself counted, and against shapes. Without the variable no
# timer is made.
# Nightly: cuda
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
sed -i 's/^model:.*/model: {kind: gpt2, layers: 2, dim: 128, heads: 2, vocab: 256, seq: 40}/
  s/^train:.*/train: {steps: 4, batch: 1, clip_norm: 1.0}/
  s/^checkpoint:.*/checkpoint: {every: 0}/' job.yaml
# profiled NAME RANKS OPTIONS...: a run with its tally and its calls; the table of rank 0 in NAME.table
profiled() {
  local name=$1 n=$2; shift 2
  FSDP_EMULATED_TALLY=$WORK/$name.tally FSDP_EMULATED_CALLS=$WORK/$name.calls train "$name" cuda "$n" "$@" || { cat "$WORK/$name.out"; return 1; }
  awk '/^cuda profile/ { on = 1 } on; /^all of these/ { on = 0 }' "$WORK/$name/run/logs/g0/rank0/stderr.log" > "$WORK/$name.table"
}
tallied() {
  awk -v what="$2" '{ n = $NF; $NF = ""; sub(/ $/, "") } $0 == what { sum += n } END { print sum + 0 }' "$WORK/$1.tally"
}
# sum NAME COLUMN PATTERN: a column of the rows that begin so: 1 calls, 3 the amount. Names have blanks:
# columns are counted behind them.
sum() {
  awk -v column="$2" -v want="$3" '{ name = substr($0, 1, 64); sub(/ +$/, "", name); split(substr($0, 65), f) } name ~ want { sum += f[column] } END { printf "%.6f\n", sum }' "$WORK/$1.table" |
    sed 's/\.000000$//'
}

export FSDP_CUDA_EPILOGUES=all # each kind of product is there
check "a run without timers" profiled plain 2
check_eq "makes no table" "" "$(cat plain.table)"
check_eq "and no call for one" 0 "$(cat plain.calls.* | grep -cE 'ElapsedTime|GetAttribute|AlgoConfig')"
FSDP_CUDA_PROFILE=1 check "a run with timers" profiled timed 2
check_eq "has the same losses" "$(losses plain)" "$(losses timed)"
check_eq "and the same work" "$(sort plain.tally)" "$(sort timed.tally)"
check_match "its table is of three steps, without the first" \
  '^cuda profile, rank 0, device 0 \(emulated\): 3 steps of [0-9.]+ ms, memory of 64 GB/s$' \
  "$(cat timed.table)"
check_eq "once for each rank" 2 "$(grep -c 'cuda profile, rank [01],' timed.out)"

# Against the plan: of each kind of entry as many calls as the program of a micro-step has, three times.
"$BIN/fsdprun" plan --schedule --nproc-per-node 2 --set run.device=cuda job.yaml > schedule 2> schedule.err || cat schedule.err
in_plan() { awk -v kind="$1" '$3 == kind && !/ fused / { n++ } END { print 3 * n }' schedule; }
for kind in gather unpack pack reduce loss forward; do check_eq "calls of $kind: the plan's" "$(in_plan $kind)" "$(sum timed 1 "^$kind")"; done
"$BIN/fsdprun" plan --json --nproc-per-node 2 --set run.device=cuda job.yaml > plan.json
planned() { grep -o "\"$1\": [0-9]*" plan.json | head -n 1 | tr -dc 0-9; }
giga() { awk -v n="$1" 'BEGIN { printf "%.6f", n / 1e9 }'; }
check_eq "bytes of gathers: a rank's shards, which it sends, and the rows of both" "$(giga $((3 * 3 * $(planned all_gather))))" "$(sum timed 3 '^gather')"
check_eq "bytes of the optimizer: gradients read, parameters and two states read and written" \
  "$(giga $((3 * 7 * $(planned parameters))))" "$(sum timed 3 '^optimizer')"
check_eq "bytes of the norm: the gradients" "$(giga $((3 * $(planned gradients))))" "$(sum timed 3 '^norm of gradients')"
# Against the device's own count, in which the first step is too.
both() { echo $(($(tallied timed "$1") / 2 * 3 / 4)); } # of one rank and three steps of four
check_eq "calls of AdamW: the device's" "$(both adamw_chunks)" "$(sum timed 1 '^  kernel_adamw')"
check_eq "of copies of lists" "$(both cast_chunks)" "$(sum timed 1 '^  kernel_cast')"
check_eq "of norms over rows" "$(both layer_norm_rows)" "$(sum timed 1 '^  kernel_(add_)?layer_norm')"
check_eq "of products" $(($(both product) + $(both 'product with sums') + $(both 'product with gelu') + \
  $(both 'product back through gelu with sums'))) "$(sum timed 1 '^  product ')"
for epilogue in 'GELU_AUX_BIAS:product with gelu' 'BGRADA:product with sums' 'DGELU_BGRAD:product back through gelu with sums'; do
  check_eq "of products with ${epilogue%%:*}" "$(both "${epilogue#*:}")" \
    "$(awk -v way="  ${epilogue%%:*}, algorithm [0-9]+, workspace 256$" \
    '$0 ~ way { split(substr($0, 65), f); n += f[1] } END { print n + 0 }' timed.table)"
done
# Against shapes: 40 rows of 128 features, a vocabulary of 256, two layers.
check_eq "operations of a product: 2 m n k" \
  "$(awk 'BEGIN { printf "%.6f", 6 * 2 * 40 * 384 * 128 / 1e12 }')" \
  "$(sum timed 3 '^  product 40x384x128 nn float32')"
check_eq "bytes of the loss: logits and their gradient" "$(giga $((3 * 2 * 40 * 256 * 4)))" "$(sum timed 3 '^loss')"
check_eq "bytes of the embedding: as many rows of the table as of the result, and the positions" \
  "$(giga $((3 * 3 * 40 * 128 * 4)))" "$(sum timed 3 '^forward embedding')"
check "parts take no longer than what they are parts of, but for what rounding makes" awk '
  function over() { return parts > whole + 0.01 }
  NR > 2 { row = $0; ms = substr(row, 65); split(ms, f); if (row ~ /^  /) parts += f[2]; else { bad += over(); whole = f[2]; parts = 0 } }
  END { exit bad + over() > 0 }' timed.table

FSDP_CUDA_EPILOGUES=bias FSDP_CUDA_PROFILE=2 check "two steps of four, without epilogues" profiled two 1
check_match "the table is of two" ': 2 steps of ' "$(cat two.table)"
check_eq "in which our kernels stand in" "4 16" "$(sum two 1 '^  kernel_activation_backward') $(sum two 1 '^  kernel_column_sum')"
check_eq "and no timer is read after the third step" "$(awk '/adamw_chunks/ { n++ } /cudaEventElapsedTime/ { last = n } END { print last }' two.calls.0)" 3
FSDP_CUDA_PROFILE=1 FSDP_EMULATED_FAULT='cudaEventElapsedTime#40' check "a time that cannot be read" profiled unread 1
check_match "is left out and counted" ', 1 times? could not be read$' "$(cat unread.table)"
FSDP_CUDA_PROFILE=yes train nonsense cuda 1
check_match "what is no number is refused" 'FSDP_CUDA_PROFILE=yes is no number of steps' "$(cat nonsense.out)"
