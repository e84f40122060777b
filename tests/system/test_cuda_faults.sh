# Every call of CUDA, cuBLASLt and NCCL in a short run on the emulated device fails once
# (tests/emulation/cuda/faults.h): the first and the last of each name, and every Nth call of all; every
# single one with FSDP_NIGHTLY=1. And faults of the device, after which every call fails. Each time the
# process ends with its status, and with one line that names call, file, rank and device. The last checkpoint
# stays, and the same command goes on from it to the losses of an undisturbed run.
# shard_runtime/cuda/ignored.h lists the calls whose failure is not reported.
# Nightly: cuda-faults
. tests/support/shell/harness.sh
. tests/support/shell/cuda_emulated.sh
export FSDP_DEVICE=cuda FSDP_COLLECTIVES=nccl FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so
NCCL_STANDIN_DIR=$WORK/standin; mkdir standin; export NCCL_STANDIN_DIR
sed -i 's/steps: 4/steps: 3/; s/every: 2/every: 1/; s/layers: 2/layers: 1/; s/dim: 32/dim: 16/; s/seq: 16/seq: 8/; s/batch: 2/batch: 1/' job.yaml
if [ -n "${FSDP_NIGHTLY:-}" ]; then every=1; else every=${FSDP_FAULT_STRIDE:-45}; fi
at_once=$(nproc)

# The two lists of ignored.h, by name.
list_of() {
  awk -v list="$1" '/^#define/ { on = $2 ~ "^" list "\\(" } on && match($0, /X\([a-zA-Z]+/) && !/^#define/ { print substr($0, RSTART + 2, RLENGTH - 2) }' "$SOURCE/shard_runtime/cuda/ignored.h"
}
list_of CUDA_NEVER_TOLD > never; list_of CUDA_UNTOLD_AT_THE_END > at_the_end
check "the list of what is ignored is read" test "$(wc -l < never)" -ge 10 -a "$(wc -l < at_the_end)" -ge 8

# points CALLS: which of a clean run's calls are to fail, as NAME#N
points() {
  awk -v every="$every" '{ n[$1]++; line[NR] = $1 "#" n[$1]; first[$1] = first[$1] == "" ? NR : first[$1]; last[$1] = NR }
    END { for (name in first) { take[first[name]] = 1; take[last[name]] = 1 }
      for (i = 1; i <= NR; i++) if (take[i] || i % every == 0) print line[i] }' "$1"
}
# What a run wrote of its losses, without times.
curve() {
  sed -n 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\), "grad_norm": \([0-9.]*\),.*/\1 \2 \3/p' "$1" 2> /dev/null | sort -n -u
}
# What is wrong with the words of a failure: of a call NAME, in FILE (what the process wrote), of RANK; of a
# fault of the device where a fourth word says so
words_of() {
  local name=$1 file=$2 rank=$3 shown device=', device [0-9]+ \(emulated\)'
  case $name in cudaLaunchKernel:*) shown='kernel_[a-z0-9_]+' ;; *) shown=$name ;; esac
  [ "$name" != cudaGetDeviceCount ] || device=''
  [ -z "${4:-}" ] || ! grep -qx "$name" "$WORK/never" "$WORK/at_the_end" || shown=  # the device is lost in it: the next call says so
  [ "$name" != cudaSetDevice ] || device=', device [0-9]+ \('
  [ "$name" != cudaGetDeviceProperties ] || device=', device [0-9]+ \('
  [ "$name" != cudaDeviceGetPCIBusId ] || device=', device [0-9]+ \('
  [ "$(grep -c '^fsdp-train: ' "$file")" = 1 ] || { echo "not one line"; return; }
  grep -qE "^fsdp-train: .*$shown.* at shard_runtime/cuda/[a-z_]+\.c:[0-9]+, rank $rank( of [0-9]+)?$device" "$file" || echo "not these words"
}
export SOURCE every

# a process alone
# alone FOLDER: the trainer on the job of that folder, by itself
alone() { RANK=0 timeout -k 5 1200 "$BIN/fsdp-train" "$1/job.json" > "$1/out" 2>&1; }
# make_alone FOLDER FROM: the job of a run, in a folder of its own
make_alone() { mkdir -p "$1" && sed "s|\"dir\": \"[^\"]*\"|\"dir\": \"$WORK/$1\"|" "$2" > "$1/job.json"; }
# The point SPEC of walk NAME: one line, "SPEC ok|untold|never reached|WHAT IS WRONG"
point() {
  local walk=$1 spec=$2 folder=$1.$2 name=${2%%[#!]*} rc wrong= fault=; case $2 in *!*) fault=fault ;; esac
  folder=$(printf '%s' "$folder" | tr ':#!' '___')
  mkdir -p "$folder"
  [ ! -d "$walk.before" ] || cp -r "$walk.before"/. "$folder"
  sed "s|\"dir\": \"[^\"]*\"|\"dir\": \"$WORK/$folder\"|" "$walk/job.json" > "$folder/job.json"
  FSDP_EMULATED_FAULT=$spec FSDP_EMULATED_CALLS=$WORK/$folder/calls alone "$folder"; rc=$?
  if ! grep -q ' fails$' "$folder/calls.0"; then echo "$spec never reached"; rm -rf "$folder"; return; fi
  case $rc in
  0)
    if grep -qx "$name" never at_the_end; then wrong=untold; else wrong="nobody is told"; fi
    [ "$(curve "$folder/run/metrics.jsonl")" = "$(curve "$walk/run/metrics.jsonl")" ] || wrong="ends well with other losses" ;;
  71) wrong=$(words_of "$name" "$folder/out" 0 "$fault") ;;
  78) # before there is a device
    [ "$name" = cudaGetDeviceCount ] && grep -q 'cudaGetDeviceCount: .* at shard_runtime/cuda/plugin.c:[0-9]*, rank 0' "$folder/out" || wrong="ends with 78" ;;
  *) wrong="ends with $rc" ;;
  esac
  if [ -z "$wrong" ]; then
    mv "$folder/out" "$folder/first.out"
    alone "$folder" || wrong="the next run ends with $?"
    [ -n "$wrong" ] || [ "$(curve "$folder/run/metrics.jsonl")" = "$(curve "$walk/run/metrics.jsonl")" ] || wrong="the next run has other losses"
  fi
  case ${wrong:-ok} in
  ok | untold) rm -rf "$folder" ;;
  *) wrong="$wrong: $(grep -hv '^step' "$folder/first.out" "$folder/out" 2> /dev/null | tail -n 3 | tr '\n' '|')" ;;
  esac
  echo "$spec ${wrong:-ok}"
}
export -f alone point words_of curve
export BIN WORK
# told WALK TITLE: what the lines of a walk come to
told() {
  local walk=$1 title=$2 n; n=$(wc -l < "$walk.told")
  echo "# $title: $n points, of which $(grep -ac ' untold$' "$walk.told") are untold, $(grep -ac 'never reached$' "$walk.told") not reached"
  check_eq "$title: each is told, or listed, and the run goes on" "" "$(grep -avE ' (ok|untold|never reached)$' "$walk.told" | head -n 20)"
  check "$title: most are reached" test "$(grep -ac ' ok$' "$walk.told")" -gt $((n / 2))
}
walk() { # NAME TITLE FAULTS: a fault of the device at every so-manieth name
  local walk=$1 title=$2 each=$3
  check "$title: a clean run" env FSDP_EMULATED_CALLS="$WORK/$walk/calls" bash -c 'alone "$1"' - "$walk"
  check "$title: it makes calls" test "$(wc -l < "$walk/calls.0")" -gt 30
  points "$walk/calls.0" > "$walk.points"
  # Faults of the device: at the first call of each name, of either kind in turn.
  awk -v each="$each" \
    '{ split($1, part, "#"); if (part[2] == 1 && ++n % each == 0) print $1 (n % 2 ? "!illegal" : "!ecc") }' \
    "$walk.points" | grep -vE '^cublasLt(Mat|Pref)|^ncclGet' > "$walk.faults"
  cat "$walk.points" "$walk.faults" | xargs -P "$at_once" -I{} bash -c 'point "$1" "$2"' - "$walk" {} > "$walk.told"
  told "$walk" "$title"
}
FSDP_EMULATED_DEVICES=1 train first cuda 1 || not_ok "a first run" "$(tail -n 5 first.out)"
make_alone train first/run/job.json
# FSDP_FAULTS_BRIEF: this walk alone, with the first call of each name. What CI has the time for under the
# sanitizers.
if [ -n "${FSDP_FAULTS_BRIEF:-}" ]; then
  every=1000000
  points() { awk '!seen[$1]++ { print $1 "#1" }' "$1"; }
  walk train "a training run" 4
  exit
fi
walk train "a training run" 1
# A run that goes on from a checkpoint.
make_alone load first/run/job.json; mkdir load.before; cp -r train/run load.before/run
rm -rf load.before/run/checkpoints/step-00000003 load.before/run/checkpoints/step-00000002; sed -i '2,$d' load.before/run/metrics.jsonl
cp -r load.before/run load/run
[ -n "${FSDP_NIGHTLY:-}" ] || every=100000
walk load "one from a checkpoint" 5
# Shards and optimizer state in host memory.
make_alone offload first/run/job.json; sed -i 's/"offload": "none"/"offload": "cpu"/' offload/job.json
check_match "the job offloads" '"offload": "cpu"' "$(cat offload/job.json)"
walk offload "offload" 5
sort -u -t' ' -k1,1 train.told load.told offload.told | sed -n 's/#.* untold$//p' | sort -u > untold
check "what is untold at the end of a run was seen: memory, streams, events, products, the communicator" \
  test \
  "$(grep -cE '^(cudaFree|cudaStreamDestroy|cudaEventDestroy|cublasLtDestroy|cublasLtMatmulDescDestroy|ncclCommFinalize|ncclCommDestroy)$' untold)" \
  = 7

# writing text: evaluation alone
text() { RANK=0 timeout -k 5 1200 "$BIN/fsdp-train" --sample "$WORK/train/run" --tokens 3; }
say() { # SPEC
  local out rc name=${1%%#*}; out=$(printf '%s' "text.$1" | tr ':#!' '___')
  FSDP_EMULATED_FAULT=$1 FSDP_EMULATED_CALLS=$WORK/$out.calls text > /dev/null 2> "$out"; rc=$?
  if ! grep -q ' fails$' "$out.calls.0"; then echo "$1 never reached"
  elif [ $rc = 0 ]; then if grep -qx "$name" never at_the_end; then echo "$1 untold"; else echo "$1 nobody is told"; fi
  elif [ $rc = 78 ] && [ "$name" = cudaGetDeviceCount ]; then echo "$1 ok"
  elif [ $rc != 71 ]; then echo "$1 ends with $rc: $(tail -n 2 "$out" | tr '\n' '|')"
  else rc=$(words_of "$name" "$out" 0); echo "$1 ${rc:-ok}${rc:+: $(tail -n 2 "$out" | tr '\n' '|')}"; fi
}
export -f text say
FSDP_EMULATED_CALLS=$WORK/text.calls text > text.out 2>&1 || not_ok "text is written" "$(cat text.out)"
points text.calls.0 | xargs -P "$at_once" -I{} bash -c 'say "$1"' - {} > text.told
told text "text from a checkpoint"

# two ranks
# A rank whose call fails ends with 71 and is the first cause; the other one is told, and ends. After a
# restart the run is the undisturbed.
pair() { # NAME COLLECTIVES OPTIONS...
  local name=$1 collectives=$2; shift 2
  mkdir -p "$name.standin"
  FSDP_EMULATED_DEVICES=2 FSDP_COLLECTIVES=$collectives NCCL_STANDIN_DIR=$WORK/$name.standin timeout -k 5 \
    1200 "$BIN/fsdprun" --nproc-per-node 2 --log-dir "$WORK/$name" "$@" job.yaml > "$name.out" 2>&1
}
# once COLLECTIVES SPEC: as `point`, on rank 1 (of a fault, with the restart in the same run)
once() {
  local spec=$2 name=${2%%#*} run rc wrong=; run=pair.$1.$(printf '%s' "$2" | tr ':#!' '___')
  local restarts=0; [ "$spec" = "${spec%!*}" ] || restarts=1
  FSDP_EMULATED_FAULT=1:$spec FSDP_EMULATED_CALLS=$WORK/$run.calls pair "$run" "$1" --set launch.max_restarts=$restarts; rc=$?
  if ! grep -q ' fails$' "$run.calls.1"; then echo "$spec never reached"; return; fi
  if [ $rc = 0 ] && [ $restarts = 0 ]; then
    if grep -qx "$name" never at_the_end; then echo "$spec untold"; else echo "$spec nobody is told"; fi
    return
  fi
  if [ $restarts = 1 ]; then
    [ $rc = 0 ] || wrong="ends with $rc"
    [ -n "$wrong" ] || grep -qE '"event": "exit", "generation": 0, "rank": 1, .*"code": 71' "$run/run/events.jsonl" ||
      grep -qx "$name" never at_the_end || wrong="rank 1 did not end with 71"
  elif [ $rc = 78 ] && [ "$name" = cudaGetDeviceCount ]; then pair "$run" "$1" --set launch.max_restarts=0 || wrong="the next run ends with $?"
  else
    [ $rc = 71 ] || wrong="ends with $rc"
    [ -n "$wrong" ] || wrong=$(words_of "$name" "$run/run/logs/g0/rank1/stderr.log" 1)
    [ -n "$wrong" ] || grep -qE '"rank": *1' "$run/run/errors.json" || wrong="another rank is blamed"
    [ -n "$wrong" ] || pair "$run" "$1" --set launch.max_restarts=0 || wrong="the next run ends with $?"
  fi
  [ -n "$wrong" ] || [ "$(curve "$run/run/metrics.jsonl")" = "$(curve "clean.$1/run/metrics.jsonl")" ] || wrong="other losses in the end"
  [ -z "$wrong" ] || wrong="$wrong: $(cat "$run/run/logs/g0/rank1/stderr.log" "$run.out" 2> /dev/null | grep -v step | tail -n 4 | tr '\n' '|')"
  [ -n "$wrong" ] || rm -rf "$run" "$run".*
  echo "$spec ${wrong:-ok}"
}
export -f pair once
for collectives in nccl cpu; do
  FSDP_EMULATED_CALLS=$WORK/clean.$collectives.calls pair "clean.$collectives" "$collectives" ||
    not_ok "two ranks by $collectives" "$(tail -n 5 "clean.$collectives.out")"
  # Here of each name the first and the last alone, and of those that are asked again and again the first.
  if [ -n "${FSDP_NIGHTLY:-}" ]; then every=9; else every=100000; fi
  points "clean.$collectives.calls.1" | grep -vE '^(cudaStreamQuery|cudaEventQuery|ncclCommGetAsyncError)#([2-9]|1.)' > "pair.$collectives.points"
  [ -n "${FSDP_NIGHTLY:-}" ] || sed -i '/^cublasLt.*Attribute#\|Destroy#1$\|^cudaLaunchKernel:.*#1$/d' "pair.$collectives.points"
  [ -n "${FSDP_NIGHTLY:-}" ] || [ $collectives = nccl ] || sed -i '/#1$/!d' "pair.$collectives.points" # the rest is the same
  grep -E '^(cudaMemcpyAsync|cublasLtMatmul|ncclAllGather|ncclReduceScatter|cudaStreamQuery|cudaEventRecord)#' "pair.$collectives.points" | sed 's/$/!ecc/' > "pair.$collectives.faults"
  cat "pair.$collectives.points" "pair.$collectives.faults" | xargs -P "$at_once" -I{} bash -c 'once "$1" "$2"' - "$collectives" {} > "pair.$collectives.told"
  told "pair.$collectives" "two ranks, collectives $collectives"
done
