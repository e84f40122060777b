#!/usr/bin/env bash
# On a machine with a GPU: what half an hour on it can show, in three parts, each one command. No network. In
# a checkout it needs what a build needs; unpacked from scripts/gpu-archive.sh only nvcc and libc.
#   scripts/gpu-check.sh [--keep DIR] [--part 1|2|3]...     those parts; all of them without
#   scripts/gpu-check.sh [--keep DIR] PIECE...              those pieces, in the order of the plan; --list prints them
# Part 1: libraries, build, each group of checks, attention, three steps of 124M. Part 2: the time of each
# product and kernel, the bench, PyTorch last. Part 3: parity, checkpoints,
# restart, memory, compute-sanitizer. A part takes 5, 9 and 9 minutes at most. Each piece is a process with a
# bound of its own: one that fails, or is killed at its bound, ends alone, and the next one runs.
# DIR (build/gpu) has, as soon as a piece prints it: part-N.txt (or pieces.txt), the output of all pieces; the
# same with .summary, a line a piece; and, after each bench, bench.jsonl. At most 7 files, whatever runs.
# Exit status: 0 all is well; 1 a piece failed or did not run; 2 no such part or piece; 69 there is no GPU, or
# no nvcc where something is to be built, or the programs of the archive do not start, and nothing was done.
# FSDP_GPU_LIMIT_S: seconds, in place of each piece's own bound and without one for the part; FSDP_GPU_PART_S:
# seconds for each part. FSDP_GPU_SMALL, FSDP_GPU_LARGE: the sizes of the bench ("124m:32", "1558m:4").
# FSDP_TEST_EMULATED_GPU=1 takes the emulated device of the tests in a GPU's place, to try the script itself;
# its numbers mean nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/gpu-env.sh
export BUILD=$PWD/build
# One word, so that the plan below stays a table.
if [ -d build/libs ]; then build="scripts/gpu-build.sh"; else build="make -s -j$(nproc) all cuda tests-build"; fi
small=${FSDP_GPU_SMALL:-124m:32} large=${FSDP_GPU_LARGE:-1558m:4}
bench="tests/bench/gpu/bench.sh" row="build/test/cuda_numerics"
# PART PIECE SECONDS COMMAND. "libraries" and "build" are pieces of each part.
plan="
1 libraries         20 scripts/gpu-libraries.sh
1 build            170 $build
1 products          25 $row products
1 kernels           25 $row kernels
1 attention         25 $row attention
1 lists             25 $row lists
1 collectives       25 $row collectives
1 attention-cudnn   25 env FSDP_CUDA_ATTENTION=auto $row attention
1 attention-time    25 build/test/attention_time
1 steps-float32     28 tests/gpu/steps.sh float32 ${small%:*}
1 steps-bfloat16    28 tests/gpu/steps.sh bfloat16 ${small%:*}
2 products-124m     20 build/test/product_time 124m
2 products-1558m    20 build/test/product_time 1558m
2 products-7b       20 build/test/product_time 7b
2 bandwidth         30 tests/gpu/profile.sh gpt2 $small
2 bandwidth-bias    30 env FSDP_CUDA_EPILOGUES=bias tests/gpu/profile.sh gpt2 $small
2 bandwidth-others  30 tests/gpu/profile.sh others ${small%:*}
2 bandwidth-float8  30 tests/gpu/profile.sh float8 ${small%:*}
2 bench-small       90 env FSDP_BENCH_SIDES=ours FSDP_BENCH_SIZES=$small $bench
2 bench-small-bias  60 env FSDP_BENCH_SIDES=ours FSDP_BENCH_SIZES=$small FSDP_CUDA_EPILOGUES=bias $bench
2 bench-small-cudnn 60 env FSDP_BENCH_SIDES=ours FSDP_BENCH_SIZES=$small FSDP_CUDA_ATTENTION=cudnn $bench
2 bench-large      140 env FSDP_BENCH_SIDES=ours FSDP_BENCH_SIZES=$large $bench
2 pytorch-small    300 env FSDP_BENCH_SIDES=peer FSDP_BENCH_SIZES=$small $bench
2 pytorch-large    300 env FSDP_BENCH_SIDES=peer FSDP_BENCH_SIZES=$large $bench
3 parity           110 bash tests/gpu/test_parity.sh
3 parity-bias       45 env FSDP_CUDA_EPILOGUES=bias FSDP_GPU_RANKS=1 bash tests/gpu/test_parity.sh
3 nccl-one-gpu      40 bash tests/gpu/test_nccl.sh
3 checkpoints       70 bash tests/gpu/test_checkpoints.sh
3 restart           75 tests/bench/gpu/restart.sh
3 memory            55 env FSDP_GPU_SMALL=$small bash tests/gpu/test_memory.sh
3 memcheck          62 env FSDP_GPU_TOOLS=memcheck bash tests/gpu/test_sanitizer.sh
3 racecheck         62 env FSDP_GPU_TOOLS=racecheck bash tests/gpu/test_sanitizer.sh
"
usage() { echo "gpu-check: $1" >&2; exit 2; }
unavailable() { echo "gpu-check: $1" >&2; exit 69; }
keep=$BUILD/gpu parts="" pieces=""
while [ $# -gt 0 ]; do
  case $1 in
  --keep) [ $# -gt 1 ] || usage "--keep wants a folder"; keep=$2; shift ;;
  --part) case ${2:-} in [123]) parts="$parts $2" ;; *) usage "--part ${2:-} is none of 1, 2, 3" ;; esac; shift ;;
  --list) awk 'NF { print $1, $2 }' <<< "$plan"; exit 0 ;;
  *) awk -v name="$1" '$2 == name { found = 1 } END { exit !found }' <<< "$plan" || usage "there is no piece $1: see --list"; pieces="$pieces $1 " ;;
  esac
  shift
done
[ -z "$parts" ] || [ -z "$pieces" ] || usage "--part or pieces, not both"
n_bad=0
# is_of PART NAME: does the part have this piece? Part "pieces" has those of the command line.
is_of() {
  case $1 in
  pieces) case $pieces in *" $3 "*) return 0 ;; *) return 1 ;; esac ;;
  *) [ "$1" = "$2" ] || [ "$3" = libraries ] || [ "$3" = build ] ;;
  esac
}
# run_piece NAME LIMIT_S COMMAND...: straight into the report; what appears there is shown as it appears. It
# ends with the piece itself, even if a process that the piece left still has the report open.
run_piece() {
  local name=$1 limit=$2 pid shown rc began=$SECONDS word first n_skipped; shift 2
  first=$(($(wc -l < "$report.txt") + 1))
  if [ "$limit" -le 0 ]; then
    word="not run, no time is left"
  else
    say "== $name, at most $limit s: $*"
    timeout -k 3 "$limit" "$@" >> "$report.txt" 2>&1 < /dev/null & pid=$!
    tail -q -n +"$((first + 1))" -f -s 0.1 --pid=$pid "$report.txt" & shown=$!
    wait $pid; rc=$?
    wait $shown
    kill -KILL -- -$pid 2> /dev/null # what is left of its process group
    case $rc in
    0) word="done" ;;
    124 | 137) word="timed out" ;;
    *) word="failed, status $rc" ;;
    esac
    n_skipped=$(tail -n +"$first" "$report.txt" | grep -c '^skip ')
    word="$word in $((SECONDS - began)) s$([ "$n_skipped" -eq 0 ] || echo ", $n_skipped skipped")"
  fi
  case $word in done*) ;; *) n_bad=$((n_bad + 1)) ;; esac
  echo "$name: $word" >> "$report.summary"
  say "== $name: $word"
  case $name in bench* | pytorch*) [ ! -e "$BUILD/bench/gpu.json" ] ||
    { sed "s/^{/{\"piece\": \"$name\", /" "$BUILD/bench/gpu.json" >> "$keep/bench.jsonl"; \
    rm "$BUILD/bench/gpu.json"; } ;; esac
}
say() { echo "$1" | tee -a "$report.txt"; }
# run_part PART SECONDS: its pieces within that time
run_part() {
  local part=$1 end=$((SECONDS + ${FSDP_GPU_PART_S:-$2})) number name limit command
  report=$keep/part-$part
  [ "$part" != pieces ] || report=$keep/pieces
  : > "$report.txt"; : > "$report.summary"
  say "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  while read -r number name limit command <&4; do
    [ -n "$number" ] && is_of "$part" "$number" "$name" || continue
    limit=${FSDP_GPU_LIMIT_S:-$limit}
    if [ -z "${FSDP_GPU_LIMIT_S:-}" ] || [ -n "${FSDP_GPU_PART_S:-}" ]; then
      [ "$limit" -le $((end - SECONDS)) ] || limit=$((end - SECONDS))
    fi
    run_piece "$name" "$limit" $command
  done 4<<< "$plan"
}
# Of the libraries that came along those that are not here: nvcc and PyTorch's Python, which run in this
# environment too, keep their own.
take_libraries() {
  local library
  rm -rf build/libs-taken; mkdir -p build/libs-taken
  for library in build/libs/*; do
    ldconfig -p 2> /dev/null | grep -q "$(basename "$library") " || ln -s "$PWD/$library" build/libs-taken/
  done
  export LD_LIBRARY_PATH=$PWD/build/libs-taken${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  build/bin/fsdprun --version > /dev/null || unavailable "the programs that came along do not start here: they need a glibc as new as that of where they were built"
}
prepare() {
  export PATH=$PATH:/usr/local/cuda/bin:/usr/sbin:/sbin
  [ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || gpu_here || unavailable "there is no GPU here: no /dev/nvidia0, /dev/nvidia1, ..."
  case "${pieces:- build }" in
  *" build "*) command -v nvcc > /dev/null || [ -e build/lib/libfsdp_cuda.so ] || unavailable "no nvcc: put the CUDA toolkit's bin on PATH" ;;
  esac
  mkdir -p "$keep" && keep=$(cd "$keep" && pwd) || exit 1
  rm -f "$keep/bench.jsonl" "$BUILD/bench/gpu.json"
  [ ! -d build/libs ] || take_libraries
  WORK=$(mktemp -d); trap 'rm -rf "$WORK"' EXIT
  skip() { :; }
  . tests/gpu/gpu.sh
}
prepare
if [ -n "$pieces" ]; then
  run_part pieces 1380
else
  for part in ${parts:-1 2 3}; do
    case $part in 1) run_part 1 300 ;; *) run_part "$part" 540 ;; esac
  done
fi
say "gpu-check: $n_bad of the pieces failed; $SECONDS s; the reports are in $keep"
[ "$n_bad" -eq 0 ]
