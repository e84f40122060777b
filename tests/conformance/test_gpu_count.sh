# --nproc-per-node gpu, auto, xpu: how many workers that is, on machines made of files. torch:
# launcher/test_run.py (nproc: auto, number, unknown, gpu, xpu).
. tests/support/shell/harness.sh
cd "$WORK" || exit 1
unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK
put() { mkdir -p "$(dirname "$1")" && printf '%s\n' "$2" > "$1"; }
nvidia() { # ROOT NUMBER NAME
  put "$1/proc/driver/nvidia/gpus/0000:0$2:00.0/information" "Model: 	 NVIDIA H100
GPU UUID: 	 $3
Device Minor: 	 $2"
  put "$1/dev/nvidia$2" ""
}
# count NPROC OPTIONS...: how many workers ran
count() {
  local n=$1
  shift
  "$FSDPRUN" --nproc-per-node "$n" "$@" --no-python echo worker 2> "$WORK/err" | grep -c worker
}
refused() { # TITLE WANT OPTIONS...
  local title=$1 want=$2; shift 2
  check_status "$title: 2" 2 "$FSDPRUN" --nproc-per-node "$@" --no-python echo worker
  check_match "and why" "$want" "$(cat "$WORK/err")"
  check_eq "in one line" 1 "$(wc -l < "$WORK/err")"
}

mkdir none; export FSDP_TEST_ROOT=$WORK/none FSDP_TEST_NVML=$TOY/fake_nvml
refused "gpu, and there is none" 'nproc-per-node: no gpu: no driver shows one' gpu
refused "xpu, and there is none" 'nproc-per-node: no xpu: no driver of Intel' xpu
check_eq "auto: the CPUs" "$(nproc)" "$(count auto)"
check_eq "cpu: the CPUs" "$(nproc)" "$(count cpu)"

for i in 0 1 2; do nvidia "$WORK/three" $i "GPU-$i$i$i"; done
export FSDP_TEST_ROOT=$WORK/three
check_eq "gpu: the three" 3 "$(count gpu)"
check_eq "auto: the three" 3 "$(count auto)"
check_eq "PET_NPROC_PER_NODE=gpu" 3 "$(PET_NPROC_PER_NODE=gpu "$FSDPRUN" --no-python echo worker | grep -c worker)"
check_eq "those in CUDA_VISIBLE_DEVICES" 2 "$(CUDA_VISIBLE_DEVICES=2,0 count gpu)"
check_eq "up to the first that is none" 1 "$(CUDA_VISIBLE_DEVICES=2,3,0 count gpu)"
CUDA_VISIBLE_DEVICES='' refused "all hidden" 'no gpu: CUDA_VISIBLE_DEVICES= hides all' gpu
CUDA_VISIBLE_DEVICES=1,1 refused "one of them twice" 'names 1 twice' gpu
check_eq "auto, all hidden: the CPUs" "$(nproc)" "$(CUDA_VISIBLE_DEVICES='' count auto)"

# MIG devices have names that only NVML knows.
export FAKE_NVML='GPU-000@00+MIG-a+MIG-b;GPU-111@01;GPU-222@02+MIG-c'
check_eq "MIG: a process sees the first" 1 "$(CUDA_VISIBLE_DEVICES=MIG-c,MIG-a count gpu)"
check_eq "MIG, one for each worker" 2 "$(CUDA_VISIBLE_DEVICES=MIG-c,MIG-a count gpu --virtual-local-rank)"
check_eq "and each gets its own" "0 MIG-c 1 MIG-a" "$(CUDA_VISIBLE_DEVICES=MIG-c,MIG-a "$FSDPRUN" --nproc-per-node gpu --virtual-local-rank \
  --no-python sh -c 'echo $RANK $CUDA_VISIBLE_DEVICES' | sort | paste -sd' ')"
FAKE_NVML=refuse CUDA_VISIBLE_DEVICES=MIG-a refused "an NVML that refuses" 'Driver Not Loaded' gpu
FAKE_NVML=crash CUDA_VISIBLE_DEVICES=MIG-a refused "one that crashes" 'NVML crashed' gpu
FAKE_NVML=hang CUDA_VISIBLE_DEVICES=MIG-a env --default-signal=INT "$FSDPRUN" --nproc-per-node gpu --no-python true 2> "$WORK/err" & pid=$!
check "one that hangs is waited for" wait_until 25 pgrep -P $pid
nvml=$(pgrep -P $pid)
kill -INT $pid; wait $pid; status=$?
check_eq "but not by SIGINT: 130" 130 $status
check "nor is it left" wait_until 20 test ! -e "/proc/$nvml"
FSDP_TEST_NVML=$WORK/libnvidia-ml.so.1 CUDA_VISIBLE_DEVICES=MIG-a refused "none" 'libnvidia-ml.so.1' gpu

# More workers than GPUs: a word for a program, an error for a job of ours on cuda.
check_eq "more workers than GPUs run all the same" 5 "$(count 5)"
check_match "with a warning" '5 workers.*3 GPUs|3 GPUs.*5 workers' "$(cat "$WORK/err")"
check_eq "as many as there are: not a word" "3 0" "$(count 3) $(wc -c < "$WORK/err")"
printf 'run: {device: cuda, dir: %s}\nmodel: {layers: 1, dim: 8, heads: 1, vocab: 256, seq: 8}\ndata: {path: x}\ntrain: {steps: 1, batch: 1}\n' "$WORK/runs" > job.yaml
# Both numbers are told.
check_status "a job on cuda: 78" 78 "$FSDPRUN" --nproc-per-node 5 job.yaml
check_match "and why" 'run.device: 5 workers on cuda and 3 GPUs:' "$(cat "$WORK/err")"
check_eq "in one line" 1 "$(wc -l < "$WORK/err")"
