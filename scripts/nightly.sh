#!/usr/bin/env bash
# The long tests, in parts:
#   scripts/nightly.sh                 the test command and every part, whole; `make nightly` is the same
#   scripts/nightly.sh PART...         these parts, whole
#   scripts/nightly.sh --list          the parts, with the seconds that CI allows each
#   scripts/nightly.sh --until TIME    for CI: a sample of one part after another, first the one whose turn it is. No part is
#                                      begun that may not end before TIME (seconds since 1970); those left out are listed.
# FSDP_TEST_PYTHON names a Python with PyTorch; without it what needs PyTorch is skipped.
# Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/packages.sh
. scripts/tally.sh

# The parts. A part is the function part_NAME below, or else the scripts that say "# Nightly: NAME"
# (tests/run).
# The seconds are what its sample takes in CI at most: on 2 cores, with what it builds, and half as long
# again.
parts() {
  cat << 'TABLE'
torch         560  PyTorch programs under fsdprun: worlds of many sizes, several agents, recovery, hangs
torch-parity  420  PyTorch's FSDP2, run live on every case of tests/parity
cuda          440  the CUDA plug-in on an emulated device, with stand-ins for NCCL, cuDNN and NVML
cuda-faults   300  every call of CUDA, cuBLASLt and NCCL fails once
asan          600  unit tests and emulated GPU kernels under ASan and UBSan
asan-faults   400  failing calls of CUDA under ASan and UBSan
asan-scripts  900  the scripts of the test command under ASan and UBSan
tsan          200  the programs of tests/tsan under TSan
fuzz          400  every target of tests/fuzz
sim           400  simulated nodes: many histories, and every planted bug is found
bench         520  every bench, for one iteration, and memory against the plan
install       330  the wheel and the tarball on roots of Debian 12 and 13, with PyTorch; accelerate, Lightning, transformers; the same bytes twice
store         240  checkpoints in moto of PyPI, a server of S3's protocol: signatures, failing requests, a server that is killed
slurm         300  the cases under a real Slurm, five times, with a time limit; it fails where there is no Slurm. Sample: the time limit
faults        720  every fault of a node, in network namespaces, and hangs of ranks; tables of what they cost and what was named
TABLE
}
names() { parts | awk '{ print $1 }'; }
seconds_of() { parts | awk -v part="$1" '$1 == part { print $2 }'; }

build() { make -s -j"$(nproc)" "$@"; }
asan_build() { build BUILD=build/asan SAN=address,undefined "$@"; }

part_asan() {
  asan_build build/asan/test/unit build/asan/test/emulation build/asan/test/kernel_traffic && BUILD=build/asan tests/run unit emulation
}
# What is left behind after each failing call, and who still uses it.
part_asan_faults() {
  local emulated=build/asan/test/emulated
  asan_build NVCC= build/asan/bin/fsdprun build/asan/bin/fsdp-train $emulated/libfsdp_cuda.so $emulated/libnccl_standin.so &&
    BUILD=build/asan FSDP_NIGHTLY= FSDP_FAULTS_BRIEF=1 tests/run --part cuda-faults system
}
# Whole: every script. Sample: a quarter of them, another one each time that the turn comes round.
part_asan_scripts() {
  local share=0/1
  [ -n "${FSDP_NIGHTLY:-}" ] || share=$(($(turn) / $(names | wc -l) % 4))/4
  asan_build NVCC= tests-build &&
    BUILD=build/asan SAN=address,undefined FSDP_NIGHTLY= FSDP_TEST_SHARE=$share tests/run --quick system parity conformance
}
part_tsan() { build tsan; }
# Whole: two minutes for each target. Sample: a minute for the store's protocol, as everyone who reaches the
# store may send to it, and 10 seconds for each of the others.
part_fuzz() {
  if [ -n "${FSDP_NIGHTLY:-}" ]; then one_result build fuzz FUZZ_SECONDS=120
  else one_result eval 'build fuzz FUZZ_ONLY=tcpstore FUZZ_SECONDS=60 && build fuzz FUZZ_SECONDS=10'; fi
}
# The test command has done each case once, but for those that take a minute.
part_slurm() {
  if [ -n "${FSDP_NIGHTLY:-}" ]; then local -x FSDP_SLURM_ROUNDS=5; else local -x FSDP_SLURM_CASES=time_limit; fi
  build tests-build && FSDP_TEST_ONLY=test_slurm tests/run system
}
part() { # NAME
  local function=part_${1//-/_}
  if declare -F "$function" > /dev/null; then "$function"
  else build tests-build && tests/run --part "$1" system parity conformance; fi
}

# turn: the number of the hour in which this commit was made
turn() { echo $(($(git log -1 --format=%ct 2> /dev/null || echo 0) / 3600)); }

# left_out NAME REASON: a part that is not begun counts as skipped.
left_out() { echo "skip - $1: $2"; echo "0 passed, 0 failed, 1 skipped"; }

# in_turn TIME: the parts in the order of this commit's turn. One that takes longer than it may is ended three
# minutes after TIME.
in_turn() {
  local until=$1 all first i name left
  mapfile -t all < <(names)
  first=$(turn)
  for ((i = 0; i < ${#all[@]}; i++)); do
    name=${all[(first + i) % ${#all[@]}]} left=$((until - $(date +%s)))
    if [ "$(seconds_of "$name")" -gt "$left" ]; then
      suite "nightly: $name" left_out "$name" "it may take $(seconds_of "$name") s, and $left are left"
    else
      suite "nightly: $name" timeout -k 10 $((left + 180)) "$0" --sample "$name"
    fi
  done
  tally
}

case ${1:-} in
--list) parts; exit ;;
--sample) part "$2"; exit ;;
esac
install_packages $packages_build $packages_data $packages_test $packages_ci || exit 1
case ${1:-} in
--until) in_turn "$2"; exit ;;
-*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
export FSDP_NIGHTLY=1
[ $# -gt 0 ] || suite "the test command" ./scripts/test.sh
for name in ${*:-$(names)}; do
  if [ -n "$(seconds_of "$name")" ]; then suite "nightly: $name" part "$name"
  else echo "there is no part $name; scripts/nightly.sh --list" >&2; exit 2; fi
done
tally
