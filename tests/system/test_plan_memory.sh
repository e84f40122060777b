# Memory is what the plan says, in each way to train that changes it; and it is taken once: steps bring no new
# pages.
# Nightly: bench
# Long
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
case $BUILD in *asan* | *tsan*) skip "memory as planned" "a sanitizer's own memory counts"; exit 0 ;; esac
cat > "$WORK/job.yaml" << END
run:        {name: planned, dir: $WORK/runs, log_every: 1}
launch:     {nproc_per_node: 2, max_restarts: 0, threads: 1}
data:       {path: $SOURCE/tests/parity/excerpt.txt}
model:      {layers: 4, dim: 640, heads: 8, vocab: 256, seq: 64}
train:      {steps: 1, batch: 4}
checkpoint: {every: 0}
END

# measured NAME WORD...: a run with these, --options and key=value, and its plan. "close": they differ by less
# than 1 MiB, up or down. That is a bound in bytes, so that what is missing cannot hide in the size of the
# model. Without AVX-512 it is 4 MiB: every product of oneDNN is then one of gemm, which packs into memory
# from malloc, and what malloc keeps depends on the order of calls.
bound=$((1 << 20)); grep -q avx512bw /proc/cpuinfo || bound=$((4 << 20))
measured() {
  local name=$1 args=(); shift
  for word in "$@"; do case $word in *=*) args+=(--set "$word") ;; *) args+=("$word") ;; esac; done
  "$BIN/fsdprun" plan --json "$WORK/job.yaml" "${args[@]}" > "$WORK/$name.json"
  run_job "$WORK/$name.log" "$WORK/job.yaml" --set "run.name=$name" "${args[@]}" || { tail -n 3 "$WORK/$name.log"; return 1; }
  awk -v bound=$bound -v total="$(number total < "$WORK/$name.json")" \
    -v measured="$(number memory_bytes < "$WORK/runs/$name/metrics.jsonl" | tail -n 1)" '
    BEGIN { off = measured - total
            print (total > bound && measured > 0 && off < bound && off > -bound ? "close" : "far") ": planned " total ", measured " measured ", off " off }'
}
# close TITLE NAME WORD...
close() { local title=$1; shift; check_match "memory as planned: $title" '^close' "$(measured "$@")"; }
close "two ranks" planned
close "bfloat16" bf16 parallel.param_dtype=bfloat16 parallel.reduce_dtype=float32
close "everything computed again" full parallel.activation_checkpoint=full
close "gradients that add up, reduced once" sync-last train.grad_accumulation=2 train.batch=2
close "gradients that add up, reduced each time" sync-every train.grad_accumulation=2 train.batch=2 parallel.gradient_sync=every
close "bfloat16, part computed again, parameters kept, and micro-steps" all parallel.param_dtype=bfloat16 \
  parallel.activation_checkpoint=selective parallel.reshard_after_forward=false train.batch=2 train.grad_accumulation=2
close "offloaded, where there is no other memory" offload parallel.offload=cpu
close "optimizer state in a file" nvme parallel.offload=nvme
close "updates inside backward" in-backward optimizer.in_backward=true train.clip_norm=0
close "copies of two ranks" hybrid --nproc-per-node 4 parallel.replicate=2 train.batch=2
close "split over two ranks and sharded over two" tensor --nproc-per-node 4 parallel.tensor=2 model.dim=896 train.batch=2
close "one rank" one --nproc-per-node 1 model.dim=512
close "one rank of two threads" threads --nproc-per-node 1 model.dim=512 launch.threads=2
close "many small blocks" deep model.layers=96 model.dim=64
# Where oneDNN chooses gemm, it generates its kernels (3.7 MiB of float32) and packs what it multiplies.
close "products by gemm: one sequence" single model.seq=256 train.batch=1
close "products by gemm: GPT-2" gpt2 model.kind=gpt2
close "products by gemm: GPT-2 in bfloat16" gpt2-bf16 model.kind=gpt2 parallel.param_dtype=bfloat16
close "products by gemm: two threads" gpt2-threads model.kind=gpt2 launch.threads=2
# Before malloc was settled, each of 8 threads took new memory for its first seven packs: 15 MiB in one step,
# 37 MiB in ten.
bound=$((4 << 20)) ONEDNN_MAX_CPU_ISA=AVX2 close "products by gemm, without AVX-512: eight threads, ten steps" \
  avx2-threads --nproc-per-node 1 model.dim=512 launch.threads=8 train.steps=10
FSDP_NUMERICS=ref close "the reference's products" ref model.kind=gpt2 model.dim=128

# pages
# Faults that need no disk, of all ranks, by /proc/PID/stat, compared with the steps that are done: two samples lie
# between steps 3 and 30.
faults() {
  local run=$WORK/runs/$1 n pid; n=$(logged_lines "$run" 0)
  for rank in 0 1; do
    pid=$(pid_of "$run" 0 $rank)
    [ -n "$pid" ] && echo "$n $rank $(awk '{ print $10 }' "/proc/$pid/stat") $(logged_lines "$run" 0)"
  done 2> /dev/null
}
pages() { # NAME WORD...: "few" when no rank touches more than LIMIT new pages a step
  local name=$1 job sets=(); shift
  for word in "$@"; do sets+=(--set "$word"); done
  run_job "$WORK/$name.log" "$WORK/job.yaml" --set "run.name=$name" --set train.steps=40 "${sets[@]}" & job=$!
  while kill -0 $job 2> /dev/null; do faults "$name"; read -r -t 0.02 < <(:) || :; done > "$WORK/$name.faults"
  wait $job || { tail -n 3 "$WORK/$name.log"; return 1; }
  awk -v limit=16 'NF == 4 && $1 >= 3 && $4 < 40 { if (!($2 in first)) { first[$2] = $3; from[$2] = $1 }; last[$2] = $3; to[$2] = $4 }
    END { for (r = 0; r < 2; r++) { steps = to[r] - from[r]; if (steps < 3) { print "rank " r ": seen in " steps + 0 " steps"; bad = 1; continue }
            each = (last[r] - first[r]) / steps; printf "rank %d: %g pages a step\n", r, each; if (each > limit) bad = 1 }
          print bad ? "too many" : "few" }' "$WORK/$name.faults"
}
check_match "steps take no new pages" 'few$' "$(pages plain model.layers=2 model.dim=128)"
check_match "nor in bfloat16, with micro-steps" 'few$' \
  "$(pages micro model.layers=2 model.dim=128 parallel.param_dtype=bfloat16 train.grad_accumulation=2 \
  train.batch=4)"
