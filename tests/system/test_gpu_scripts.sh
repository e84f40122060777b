# The scripts for a machine with a GPU, where there is none: what they say then, what the archive for one
# without our packages holds, and each of their lines over the emulated device.
# Nightly: cuda
. tests/support/shell/harness.sh
. scripts/gpu-env.sh
if gpu_here; then skip "scripts for a machine with a GPU" "there is one here: scripts/gpu-check.sh"; exit 0; fi
if [ "$BUILD" != "$SOURCE/build" ]; then skip "scripts for a machine with a GPU" "they work on build, and this is another flavour"; exit 0; fi
check "the archive holds at most 64 MiB" scripts/gpu-archive.sh --built "$WORK/gpu.tar.gz"
check "and is that large" test "$(stat -c %s "$WORK/gpu.tar.gz")" -le $((64 << 20))
check "it unpacks" tar xf "$WORK/gpu.tar.gz" -C "$WORK"
tree=$WORK/fsdprun
# bare COMMAND...: as on a machine that has nothing of ours: no variable of this environment, and of PATH only
# the system's.
bare() { (cd "$tree" && env -i PATH=/usr/bin:/bin HOME="$WORK" TMPDIR="$WORK" "$@"); }
foreign() { # what a program of the archive needs and neither it nor libc has
  bare env LD_LIBRARY_PATH=build/libs ldd "$1" | awk '/not found/ { print $1 } $3 ~ /^\// && $3 !~ /^build\/libs\// { print $1 }' | grep -vE '^(libc|libm|libdl|librt|libpthread)\.so'
}
for program in bin/fsdprun bin/fsdp-agent bin/fsdp-train test/cuda_numerics test/attention_time test/product_time test/parity_compare; do
  check_eq "$(basename "$program") needs the archive's libraries and libc" "" "$(foreign "build/$program")"
done
check_status "without a GPU it says so, and does nothing" 69 bare scripts/gpu-check.sh --part 1
check_match "in one line" '^gpu-check: there is no GPU here' "$(cat "$WORK/err")"
check_status "without nvcc too, where something is to be built" 69 bare env PATH=/bin:/nowhere scripts/gpu-check.sh
check_match "with what is missing" '^gpu-check: (no nvcc|there is no GPU)' "$(cat "$WORK/err")"
check_status "make test-gpu too, where the archive was unpacked" 2 bare make -s test-gpu
check_match "in the same words" '^gpu-check: there is no GPU here' "$(cat "$WORK/err")"
check_status "a part that it does not have" 2 bare scripts/gpu-check.sh --part 4
check_status "a piece that it does not have" 2 bare scripts/gpu-check.sh tests
check_status "the bench alone" 69 bare tests/bench/gpu/bench.sh
check_status "the time of a restart alone" 69 bare tests/bench/gpu/restart.sh

# Any device node is a GPU, whatever its number; those of the driver alone are none.
mkdir "$WORK/dev"; touch "$WORK/dev/nvidiactl" "$WORK/dev/nvidia-uvm"
check "no device node: no GPU" eval '! gpu_here "$WORK/dev"'
touch "$WORK/dev/nvidia3"
check "/dev/nvidia3 alone is a GPU" gpu_here "$WORK/dev"

# Libraries that the loader does not find: in the toolkit, next to PyTorch, or nowhere. Nothing is looked for
# in this machine's own cache.
mkdir -p "$WORK"/toolkit/{bin,lib64} "$WORK"/site/torch "$WORK"/site/nvidia/{nccl,cudnn}/lib "$WORK/loader"
touch "$WORK/site/torch/__init__.py" "$WORK/toolkit/lib64/libcublasLt.so.13" "$WORK"/site/nvidia/{nccl/lib/libnccl.so.2,cudnn/lib/libcudnn.so.9}
cat > "$WORK/toolkit/bin/nvcc" <<'NVCC'
#!/bin/bash
# A compiler and a linker that leave the file they are asked for.
while [ $# -gt 0 ]; do [ "$1" != -o ] || { echo made > "$2"; exit; }; shift; done
NVCC
cp "$WORK/toolkit/bin/nvcc" "$WORK/toolkit/bin/gcc"; printf '#!/bin/bash\n' > "$WORK/toolkit/bin/ldconfig"
cat > "$WORK/toolkit/bin/compute-sanitizer" <<'SANITIZER'
#!/bin/bash
# Takes the options that compute-sanitizer 2026.4 has, and runs the program. A filter of kernels, which only
# this one counts, is a line.
if [ "$1" = --help ]; then echo "  --kernel-name arg                     key1=val1,key2=val2,..."; exit; fi
while [ $# -gt 0 ]; do
  case $1 in
  --tool) case $2 in memcheck | racecheck | synccheck) ;; *) exit 8 ;; esac; tool=$2 ;;
  --report-api-errors) [ "$2" = no ] || exit 8; quiet=1 ;;
  --error-exitcode) ;;
  --kernel-name) echo "${2#kns=}" >> "$SANITIZER_LOG.$tool" ;;
  -*) echo "no option $1" >&2; exit 8 ;;
  *) [ -n "${quiet:-}" ] && exec "$@"; exit 8 ;;
  esac
  shift 2
done
SANITIZER
chmod +x "$WORK"/toolkit/bin/*
found=$(env -u LD_LIBRARY_PATH -u FSDP_BENCH_PYTHON PATH="$WORK/toolkit/bin:$PATH" PYTHONPATH="$WORK/site" bash -c '. scripts/gpu-env.sh; find_gpu_libraries; where_gpu_libraries')
check_match "cuBLASLt is found in the toolkit" "^libcublasLt.so $WORK/toolkit/lib64/libcublasLt.so.13$" "$found"
check_match "NCCL next to PyTorch" "^libnccl.so.2 $WORK/site/nvidia/nccl/lib/libnccl.so.2$" "$found"
check_match "cuDNN too" "^libcudnn.so.9 $WORK/site/nvidia/cudnn/lib/libcudnn.so.9$" "$found"
check_match "and what is nowhere is told" "^libnvrtc.so not found$" "$found"
touch "$WORK/loader/libnccl.so.2"
check_match "what the loader finds comes first" "^libnccl.so.2 $WORK/loader/libnccl.so.2$" \
  "$(env PATH="$WORK/toolkit/bin:$PATH" PYTHONPATH="$WORK/site" LD_LIBRARY_PATH="$WORK/loader" bash -c '. scripts/gpu-env.sh; find_gpu_libraries; where_gpu_libraries')"

# A product that cuBLASLt offers and then does not take: production has another way, so this is a skip.
export FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6
check_status "epilogues that are refused at run time are no failure" 0 env FSDP_EMULATED_LT=refuse "$TOY/cuda_numerics" products
check_match "each is a skip with its reason" '^skip - cuda row: product and GELU by tanh: .*NOT_SUPPORTED' "$(cat "$WORK/out")"
check_eq "nine of them" 9 "$(grep -c '^skip - .*NOT_SUPPORTED' "$WORK/out")"
check_status "nor where products are timed" 0 env FSDP_TEST_EMULATED_GPU=1 FSDP_EMULATED_LT=refuse "$TOY/product_time" 1558m
check_eq "the other ways are timed" "11 skipped, 28 timed" "$(grep -c '^skip - .*: cuBLASLt refuses it$' "$WORK/out") skipped, $(sed -n 's/^ok - time of \([0-9]*\) products of 1558m$/\1/p' "$WORK/out") timed"
check "and a refused one is in no row" eval '! grep -qE "BGRAD|beside" "$WORK/err"'
unset FSDP_CUDA_PLUGIN FSDP_CUDA_DRIVER

# The three parts over the emulated device: the archive carries none, so it is put there. In a second tree
# each piece is refused, and then hangs.
cp -r "$BUILD/test/emulated" "$tree/build/test/"
export FSDP_TEST_EMULATED_GPU=1 NVCC_PATH=$WORK/toolkit/bin:/usr/bin:/bin
cp -r "$tree" "$WORK/bad"
hang=$RANDOM$RANDOM$RANDOM # seconds, and the name of all that must not be left
at_exit() { local pid; for pid in $(pgrep -f "sleep $hang"); do kill -KILL "$pid"; done; }
cat > "$WORK/stand-in" <<STANDIN
#!/bin/bash
# In place of a piece's program: refuses, or hangs with two children of its own, of which one ignores TERM.
echo "\$0 is run"
[ "\$STAND_IN" = hang ] || exit 3
. scripts/gpu-env.sh
case \$0 in *steps*) trap '' TERM ;; esac
(trap '' TERM; exec sleep $hang) &
FSDP_GPU_LIMIT_S=$hang at_most 1 sleep $hang
STANDIN
for program in scripts/gpu-libraries.sh scripts/gpu-build.sh build/test/cuda_numerics build/test/attention_time build/test/product_time tests/gpu/steps.sh tests/gpu/profile.sh tests/bench/gpu/bench.sh \
  tests/gpu/test_parity.sh tests/gpu/test_nccl.sh tests/gpu/test_checkpoints.sh tests/gpu/test_memory.sh tests/bench/gpu/restart.sh tests/gpu/test_sanitizer.sh; do
  install -m 755 "$WORK/stand-in" "$WORK/bad/$program"
done
bad() { # NAME fail|hang SECONDS [VARIABLE...]: all parts, with that bound of each piece
  local name=$1 how=$2 limit=$3; shift 3
  (cd "$WORK/bad" && env -i PATH="$NVCC_PATH" TMPDIR="$WORK" FSDP_TEST_EMULATED_GPU=1 STAND_IN="$how" FSDP_GPU_LIMIT_S="$limit" "$@" \
    scripts/gpu-check.sh --keep "$WORK/keep-$name" > "$WORK/bad.$name" 2>&1)
  echo $? > "$WORK/bad.$name.status"
}
# cut_off: a rehearsal that is killed in its first piece, as where the machine is taken away
cut_off() {
  (cd "$WORK/bad" && exec env -i PATH="$NVCC_PATH" TMPDIR="$WORK" FSDP_TEST_EMULATED_GPU=1 STAND_IN=hang FSDP_GPU_LIMIT_S=$hang scripts/gpu-check.sh --keep "$WORK/keep-cut" --part 1 > /dev/null 2>&1) &
  local pid=$!
  wait_until 60 grep -q ' is run$' "$WORK/keep-cut/part-1.txt"
  kill -KILL $pid; wait $pid 2> /dev/null
}
{ bad fail fail 6000; bad hang hang "$(pace)"; bad late hang 6000 FSDP_GPU_PART_S="$(pace)"; cut_off; } &
good() { # PART...: as on a machine that has nothing of ours
  (cd "$tree" && env -i PATH="$NVCC_PATH" HOME="$WORK" TMPDIR="$WORK" FSDP_TEST_EMULATED_GPU=1 FSDP_GPU_SMALL=tiny:1 FSDP_GPU_LARGE=tiny:1 FSDP_GPU_CASES=gpt2.adamw FSDP_GPU_LIMIT_S=6000 \
    SANITIZER_LOG="$WORK/filtered" FSDP_BENCH_STEPS=5 FSDP_BENCH_PYTHON="${FSDP_TEST_PYTHON:-/nowhere/python}" LAYERS=1 DIM=32 SEQ=16 STEPS=100000 scripts/gpu-check.sh --keep "$WORK/keep" "$@")
}
for part in 1 2 3; do
  check_status "part $part" 0 good --part $part
  cp "$WORK/keep/part-$part.txt" "$WORK/report.$part"
  check_eq "part $part: what it shows is what it keeps" "$(sed '$d' "$WORK/out")" "$(sed '$d' "$WORK/keep/part-$part.txt")"
  [ $part != 2 ] || cp "$WORK/keep/bench.jsonl" "$WORK/"
done
wait
names() { scripts/gpu-check.sh --list | awk -v part="$1" '$1 == part || $2 == "libraries" || $2 == "build" { print $2 }'; }
for part in 1 2 3; do
  check_eq "part $part ran each of its pieces" "$(names $part)" "$(sed -n 's/: done in .*//p' "$WORK/keep/part-$part.summary")"
  check_eq "part $part, all refused: each ends alone, and is told" "$(names $part)" "$(sed -n 's/: failed, status 3 in .*//p' "$WORK/keep-fail/part-$part.summary")"
  check_eq "part $part, all hang: each ends at its bound, and is told" "$(names $part)" "$(sed -n 's/: timed out in .*//p' "$WORK/keep-hang/part-$part.summary")"
  for how in fail hang; do
    check_eq "part $part, $how: the lines of each piece are kept" "$(names $part | wc -l)" "$(grep -c ' is run$' "$WORK/keep-$how/part-$part.txt")"
  done
  check_eq "part $part, whose first piece takes all its time: each other piece is told not to have run" "$(names $part | sed 1d)" \
    "$(sed -n 's/: not run, no time is left$//p' "$WORK/keep-late/part-$part.summary")"
done
check_eq "all end with 1" "1 1 1" "$(cat "$WORK"/bad.{fail,hang,late}.status | paste -sd ' ')"
check_match "what was printed before a part was killed is kept" ' is run$' "$(cat "$WORK/keep-cut/part-1.txt")"
for pid in $(pgrep -f "sleep $hang"); do grep -qz "^STAND_IN=hang" "/proc/$pid/environ" && grep -qz "^FSDP_GPU_LIMIT_S=$hang$" "/proc/$pid/environ" && kill -KILL "$pid"; done # of the one that was killed
check_eq "no process of any other piece is left" "" "$(pgrep -f "sleep $hang")"
for keep in keep keep-fail keep-hang keep-late keep-cut; do check "$keep has at most 8 files" test "$(find "$WORK/$keep" -type f | wc -l)" -le 8; done

report=$WORK/report.1
check_match "kernels were tested" '^ok - cuda row: product$' "$(cat "$report")"
check_match "three steps in float32 and in bfloat16" '^2$' "$(grep -c 'complete: 3 of 3 steps are done' "$report")"
check_match "the plug-in was built" '^build/lib/libfsdp_cuda.so for sm_90' "$(cat "$report")"
check_match "and not again by the next part" '^build/lib/libfsdp_cuda.so was built here' "$(cat "$WORK/report.2")"
report=$WORK/report.2
# Each model's products in both ways, and what each way was. The emulated library refuses nothing that
# cuBLASLt may take.
for model in 124m:47 1558m:39 7b:16; do check_match "products of ${model%:*} are timed" "^ok - time of ${model#*:} products of ${model%:*}$" "$(cat "$report")"; done
check_match "a bias's gradient by BGRAD" '^  product 16x48x24 tn bfloat16 .* BGRADA, algorithm [0-9]+, workspace [0-9]+$' "$(cat "$report")"
check_match "and by a column sum" '^  kernel_column_sum ' "$(cat "$report")"
check_match "the head with rows that are padded" '^1558m head of 37, rows of 40: weight gradient ' "$(cat "$report")"
check_match "and with a vocabulary that is" '^124m head of 40, rows of 40: forward to float32 ' "$(cat "$report")"
# Every kernel of the step at its bandwidth, compared with the memory's peak.
kernels=$(sed -n 's/.*\]:   \(kernel_[a-z0-9_]*\) .*/\1/p' "$report" | sort -u)
launchers=$(sed -n 's/^int \(kernel_[a-z0-9_]*\)(.*/\1/p' shard_runtime/cuda/kernels/kernels.h | sort)
# Fused attention takes the place of the unfused softmax.
check_eq "each kernel that training uses is in a table" "" "$(comm -13 <(echo "$kernels") <(grep -vxE 'kernel_softmax(_backward)?(_bf16)?' <<< "$launchers"))"
check_eq "four tables with the peak" 4 "$(grep -c 'cuda profile, rank 0.*memory of 64 GB/s' "$report")"
LC_ALL=C awk -v n=65536 -f tests/bench/gpu/zipf.awk > "$WORK/zipf"
check_match "its tokens follow Zipf's law: the commonest is 16 in 100" '^1[56][0-9][0-9]$' $(($(tr -cd '\0' < "$WORK/zipf" | wc -c) * 10000 / 65536))
check_eq "one bench of three is by cuDNN, as its caller asked" 1 "$(grep -c 'cuBLASLt.*, attention cuDNN' "$report")"
for what in "GPT-2 tiny, tokens/s" "GPT-2 tiny, share of the peak, %" "GPT-2 tiny, peak memory, GiB" "GPT-2 tiny, host in a step, ms"; do
  check_eq "each bench tells: $what" 4 "$(grep -cE "^$what +\| +[0-9.]+ " "$report")"
done
head -n 1 "$WORK/bench.jsonl" > "$WORK/bench.json"
check "and leaves the same as JSON" "$TOY/json_check" "$WORK/bench.json"
check_eq "four rows of each, of ours none missing" 16 "$(grep -o '"ours": [0-9.]*, "peer"' "$WORK/bench.jsonl" | grep -c .)"
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  check_eq "nor of PyTorch's, but the memory that a CPU has no count of" 6 "$(grep -o '"peer": [0-9.]*, "peer_name": "torch-[^"]*"' "$WORK/bench.jsonl" | grep -c .)"
else
  skip "PyTorch's side of the bench" "FSDP_TEST_PYTHON is not set"
fi
report=$WORK/report.3
# piece NAME: its lines in the report
piece() { sed -n "/^== $1, at most/,/^== $1: /p" "$report"; }
check_eq "parity at 1, 2 and 4 ranks, in float32, bfloat16 and TF32, the same bits twice" 8 "$(piece parity | grep -cE '^ok - (gpt2.adamw|has the same bits)')"
check_eq "and at 1 rank with the bias alone as epilogue" 6 "$(piece parity-bias | grep -cE '^ok - (gpt2.adamw|has the same bits)')"
check_eq "NCCL between two ranks on one GPU" 3 "$(piece nccl-one-gpu | grep -c '^ok - ')"
check_eq "memory against the plan, at 1 and 2 ranks" 3 "$(piece memory | grep -c '^ok - memory of ')"
kernels=$(grep -hA1 __global__ shard_runtime/cuda/kernels/*.cu | grep -oE '[a-z_0-9]+\(' | grep -v launch_bounds | tr -d '(' | sort -u)
for tool in memcheck racecheck; do
  check_eq "$tool: the three groups of kernels" 3 "$(piece $tool | grep -c "^ok - [a-z]* under $tool$")"
  check_eq "$tool instruments our kernels by name, and no other" "$kernels" "$(sort -u "$WORK/filtered.$tool")"
done
check_eq "checkpoints go from the cpu to cuda and back" 2 "$(grep -c '^ok - a checkpoint of ' "$report")"
for run in '1 rank(s), FSDP_COLLECTIVES=nccl' '2 rank(s), FSDP_COLLECTIVES=cpu' '2 rank(s), FSDP_COLLECTIVES=nccl'; do
  parts=$(awk -v run="restart at $run" '/^restart at / { on = $0 == run } on && / ms$/' "$report")
  for what in 'teardown: killed -> known' 'teardown: known -> new ones spawned' 'process start, joining, model' 'context' 'collectives init' 'load' 'first step' 'whole: killed -> first step done'; do
    check_match "a restart at $run is broken down: $what, not negative" "^$what +[0-9.]+ ms" "$parts"
  done
  check "a restart at $run: its parts are the whole, but for what rounding makes" awk '/^whole/ { whole = $(NF - 1); next } { sum += $(NF - 1) } END { exit !(whole > 0 && sum - whole < 1 && whole - sum < 1) }' <<< "$parts"
done
