# Attention by cuDNN. Its numbers: graphs run by a stand-in that computes what they say, against the
# reference; every call failing once; whole training runs. The graphs themselves: before cuDNN, where it is
# found, which compiles them for GPUs that are not here.
# Nightly: cuda
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
export FSDP_CUDNN_LIBRARY=$BUILD/test/emulated/libcudnn_standin.so CUDNN_STANDIN_LOG=$WORK/cudnn.log
program() { # COMMAND...: its lines are the program's own
  local name; name=$(basename "$1")
  "$@" > "$name.out" 2>&1 || n_failed=$((n_failed + 1))
  grep -E '^(ok|not ok|skip) ' "$name.out" || not_ok "$name" "$(tail -n 5 "$name.out")"
}
for order in late 9; do FSDP_EMULATED_ORDER=$order program "$TOY/cuda_cudnn"; done
FSDP_TEST_EMULATED_GPU=1 program "$TOY/attention_time"

# Training: bfloat16's rounding compared with the cpu and with our kernels.
sed -i 's/seq: 16/seq: 64/' job.yaml
bf16=(--set parallel.param_dtype=bfloat16 --set parallel.reduce_dtype=float32)
says() { grep -m 1 'a step, cuda' "$1.out"; }
check "the cpu" train cpu cpu 2 "${bf16[@]}"
check "our kernels" train ours cuda 2 "${bf16[@]}"
: > "$CUDNN_STANDIN_LOG"
FSDP_CUDA_ATTENTION=cudnn check "cuDNN" train cudnn cuda 2 "${bf16[@]}"
check_match "which is told" 'attention cuDNN 91900' "$(says cudnn)"
check_eq "losses and norms are the cpu's" 0 "$(how_many_differ 1e-2 cpu cudnn)"
check_eq "and our kernels'" 0 "$(how_many_differ 1e-2 ours cudnn)"
# 2 layers, 4 steps and 2 ranks, forward and backward; each rank's layers share their two plans.
check_eq "all attention was by it" "plans 4, runs 32" "plans $(grep -c ^plan "$CUDNN_STANDIN_LOG"), runs $(grep -c ^run "$CUDNN_STANDIN_LOG")"
like_ours() { # TITLE NAME OPTIONS...: auto, against our kernels
  local title=$1 name=$2; shift 2
  check "$title: ours" train "ours-$name" cuda 2 "$@"
  FSDP_CUDA_ATTENTION=auto check "$title" train "auto-$name" cuda 2 "$@"
  check_eq "$title: the same" 0 "$(how_many_differ 1e-2 "ours-$name" "auto-$name")"
}
like_ours "recomputing" ac --set parallel.activation_checkpoint=full "${bf16[@]}"
like_ours "GPT-2" gpt2 --set model.kind=gpt2 "${bf16[@]}"
like_ours "in float32 it is ours" f32
check_match "with the reason" 'attention ours \(only bfloat16 is asked of it\)' "$(says auto-f32)"
check_eq "to the digit" 0 "$(how_many_differ 0 ours-f32 auto-f32)"
like_ours "dropout is ours" drop --set model.dropout=0.1 "${bf16[@]}"
check_match "with its reason" 'attention ours \(its dropout is not ours\)' "$(says auto-drop)"

FSDP_CUDA_ATTENTION=cudnn check "fewer than 64 positions store their matrix: nothing is asked of it" train short cuda 1 --set model.seq=32 "${bf16[@]}"
check_eq "and nothing said" "" "$(says short | grep -o attention)"

# What cannot be had: an error where it was asked for by name, else ours.
FSDP_CUDA_ATTENTION=cudnn train refused cuda 1
check_match "asked for in float32" 'FSDP_CUDA_ATTENTION=cudnn: only bfloat16 is asked of it' "$(cat refused.out)"
FSDP_CUDA_ATTENTION=cudnn FSDP_CUDNN_LIBRARY=/nowhere/libcudnn.so train nowhere cuda 1 "${bf16[@]}"
check_match "asked for where it is not" 'FSDP_CUDA_ATTENTION=cudnn: cuDNN: /nowhere/libcudnn.so' "$(cat nowhere.out)"
FSDP_CUDA_ATTENTION=auto FSDP_CUDNN_LIBRARY=/nowhere/libcudnn.so check "auto where it is not" train auto-nowhere cuda 1 "${bf16[@]}"
check_match "is ours, with the reason" 'attention ours \(cuDNN: /nowhere/libcudnn.so' "$(says auto-nowhere)"
FSDP_CUDA_ATTENTION=auto CUDNN_STANDIN_OLD=1 check "auto with an old one" train auto-old cuda 1 "${bf16[@]}"
check_match "is ours as well" 'attention ours \(cuDNN: .* is version 91500' "$(says auto-old)"
FSDP_CUDA_ATTENTION=auto FSDP_CUDNN_LIBRARY=libm.so.6 check "auto with another library" train auto-other cuda 1 "${bf16[@]}"
check_match "is ours too" 'attention ours \(cuDNN: libm.so.6 has no cudnn' "$(says auto-other)"
FSDP_CUDA_ATTENTION=theirs train word cuda 1 "${bf16[@]}"
check_match "another word" 'FSDP_CUDA_ATTENTION=theirs: not one of ours, auto, cudnn' "$(cat word.out)"

# cuDNN itself, wherever it is: the toolkit's, PyTorch's, the loader's. Without a driver one stands in that
# takes modules and runs none.
driver=; ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1' || driver=$BUILD/test/emulated/driver
before() { # TITLE LIBRARY FOLDERS
  local out="$WORK/graphs-$1.out"
  FSDP_CUDNN_LIBRARY=$2 LD_LIBRARY_PATH=${driver:+$driver:}$3${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout \
    3000 "$TOY/cudnn_graphs" > "$out" 2>&1 || n_failed=$((n_failed + 1))
  grep -E '^(ok|not ok) ' "$out" || not_ok "our graphs before cuDNN ($1)" "$(tail -n 5 "$out")"
}
n_found=0
case $BUILD in
*asan* | *tsan*) skip "our graphs before cuDNN itself" "it is not built for a sanitizer" ;;
*)
  toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/..
  for library in "$toolkit/lib64/libcudnn.so.9" "$toolkit/lib/libcudnn.so.9"; do
    [ -e "$library" ] || continue
    before toolkit "$library" "$(dirname "$library")"; n_found=$((n_found + 1)); break
  done
  site=$([ -n "${FSDP_TEST_PYTHON:-}" ] && "$FSDP_TEST_PYTHON" -c 'import nvidia, sys; print(list(nvidia.__path__)[0])' 2> /dev/null)
  if [ -n "$site" ] && [ -e "$site/cudnn/lib/libcudnn.so.9" ]; then
    before pytorch "$site/cudnn/lib/libcudnn.so.9" \
      "$site/cudnn/lib:$(dirname "$(ls "$site"/*/lib/libnvrtc.so.* 2> /dev/null | head -n 1)" 2> \
      /dev/null)"; n_found=$((n_found + 1))
  fi
  [ $n_found -gt 0 ] || skip "our graphs before cuDNN itself" "no libcudnn.so.9: no CUDA toolkit with it, and FSDP_TEST_PYTHON has none"
  ;;
esac
