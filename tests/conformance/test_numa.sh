# --numa-binding for real: the CPUs on which workers may run, as the kernel reports them. This is done on this
# machine, and on machines made of files (which nodes there are, where the GPUs are). Also what is refused, in
# one line.
# torch: no test of torchrun's own goes this far: it prepends numactl, which must be installed, and needs
# GPUs.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
cd "$WORK" || exit 1
mapfile -t cpus < <(awk '/^Cpus_allowed_list/ {n = split($2, ranges, ","); for (i = 1; i <= n; i++) {m = split(ranges[i], e, "-"); for (c = e[1]; c <= e[m]; c++) print c}}' /proc/self/status)
all=$(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status)
where='echo "$RANK $(grep ^Cpus_allowed_list /proc/self/status | cut -f 2) $OMP_NUM_THREADS"'
unset OMP_NUM_THREADS CUDA_VISIBLE_DEVICES
# workers N OPTIONS...: where each of N workers runs, and with how many threads; in rank order
workers() {
  local n=$1
  shift
  "$FSDPRUN" --nproc-per-node "$n" "$@" --no-python sh -c "$where" | sort -n | paste -sd';'
}
put() { mkdir -p "$(dirname "$1")" && printf '%s\n' "$2" > "$1"; }

# machine NAME NODE_OF_FIRST NODE_OF_REST: a tree in which the first CPU that may be used is at one node, the
# rest at another
machine() {
  local root=$WORK/$1 cpu node
  put "$root/sys/devices/system/cpu/online" "$all"
  for cpu in "${cpus[@]}"; do
    node=$3; [ "$cpu" = "${cpus[0]}" ] && node=$2
    put "$root/sys/devices/system/cpu/cpu$cpu/topology/physical_package_id" "$node"
    put "$root/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" "$cpu"
  done
  put "$root/sys/devices/system/node/node$2/cpulist" "${cpus[0]}"
  put "$root/sys/devices/system/node/node$3/cpulist" "$(IFS=,; echo "${cpus[*]:1}")"
}
# gpus NAME NODE...: NVIDIA GPUs, in PCI order, at these nodes
gpus() {
  local root=$WORK/$1 i=0 node; shift
  for node in "$@"; do
    put "$root/proc/driver/nvidia/gpus/0000:0$i:00.0/information" "Device Minor: 	 $i"
    put "$root/dev/nvidia$i" ""
    put "$root/sys/bus/pci/devices/0000:0$i:00.0/numa_node" "$node"
    i=$((i + 1))
  done
}

# This machine, as it is.
check_eq "unbound workers run where the launcher may" "0 $all;1 $all" "$(workers 2 | sed 's/ [0-9]*;/;/g; s/ [0-9]*$//')"
for binding in node socket; do
  check_match "$binding: some of them" "^0 [0-9,-]+ [1-9][0-9]*$" "$(workers 1 --numa-binding $binding)"
done
if [ "${#cpus[@]}" -lt 2 ]; then skip "more than one CPU" "this machine lets us use one"; exit 0; fi
check_eq "taskset is kept within" "0 ${cpus[1]} 1" "$(FSDP_TEST_ROOT='' taskset -c "${cpus[1]}" "$FSDPRUN" --numa-binding socket --no-python sh -c "$where")"

# Two nodes: 0 has the first CPU, 3 the rest.
rest=$(IFS=,; echo "${cpus[*]:1}"); first=${cpus[0]}
[ "${#cpus[@]}" = 2 ] || rest="${cpus[1]}-${cpus[-1]}"
n_rest=$((${#cpus[@]} - 1))
machine plain 0 3
export FSDP_TEST_ROOT=$WORK/plain
check_eq "no GPU: one worker on each node" "0 $first 1;1 $rest 1" "$(OMP_NUM_THREADS=1 workers 2 --numa-binding node)"
check_eq "more workers than nodes: in blocks" "0 $first;1 $first;2 $rest;3 $rest" "$(workers 4 --numa-binding node | sed 's/ [0-9]*;/;/g; s/ [0-9]*$//')"
check_status "too few cores: 78" 78 "$FSDPRUN" --nproc-per-node $((2 * ${#cpus[@]} + 2)) --numa-binding exclusive --no-python true
check_eq "in one line that says for whom, and why" "1 1" \
  "$(wc -l < "$WORK/err") $(grep -cE \
  '^fsdprun: --numa-binding exclusive: local rank 0: NUMA node 0 has 1 cores to use for [0-9]+ workers' \
  "$WORK/err")"

# GPUs decide: both at node 3, then crossed, then one that does not tell.
machine crossed 0 3; gpus crossed 3 0
export FSDP_TEST_ROOT=$WORK/crossed
check_eq "each worker stands at its GPU" "0 $rest 1;1 $first 1" "$(OMP_NUM_THREADS=1 workers 2 --numa-binding node)"
check_eq "by the order in which it sees them" "0 $first 1;1 $rest 1" "$(OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=1,0 workers 2 --numa-binding node)"
check_eq "and in every generation" "0 $rest;1 $first" "$("$FSDPRUN" --nproc-per-node 2 --max-restarts 1 --numa-binding node --no-python sh -c \
  '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1; echo "$RANK $(grep ^Cpus_allowed_list /proc/self/status | cut -f 2)"' 2> /dev/null | sort | paste -sd';')"
machine silent 0 3; gpus silent -1 0
check_eq "a GPU that does not tell: spread" "0 $first 1;1 $rest 1" "$(FSDP_TEST_ROOT=$WORK/silent OMP_NUM_THREADS=1 workers 2 --numa-binding node)"
check_status "a GPU at a node of which nothing may be used: 78" 78 taskset -c "$first" "$FSDPRUN" --numa-binding node --no-python true
check_eq "that line names node and CPUs" 1 "$(grep -cE '^fsdprun: --numa-binding node: local rank 0: its GPU is at NUMA node 3, .* none \(it may use '"$first"'\)$' "$WORK/err")"
check_status "caches that are not told: 78" 78 "$FSDPRUN" --numa-binding core-complex --no-python true
check_match "say so" 'core-complex: local rank 0: this machine does not tell which CPUs share a cache' "$(cat "$WORK/err")"
rm -r "$FSDP_TEST_ROOT/sys"
check_status "a machine that tells nothing: 78" 78 "$FSDPRUN" --numa-binding node --no-python true
check_match "too" 'fsdprun: --numa-binding node: .*does not tell which CPUs there are' "$(cat "$WORK/err")"

# MIG devices have names that only NVML knows; it is asked in addition to everything else.
machine migs 0 3; gpus migs 3 0
export FSDP_TEST_ROOT=$WORK/migs FSDP_TEST_NVML=$TOY/fake_nvml CUDA_VISIBLE_DEVICES=MIG-b,MIG-a
bound=(env --default-signal=INT "$FSDPRUN" --numa-binding node --no-python)
export FAKE_NVML='GPU-0@00+MIG-a;GPU-1@01+MIG-b'
check_eq "a MIG device is where its GPU is" "0 $first 1;1 $rest 1" "$(OMP_NUM_THREADS=1 workers 2 --virtual-local-rank --numa-binding node)"
FAKE_NVML=refuse check_status "an NVML that fails: 78" 78 "${bound[@]}" true
check_eq "and why, in one line" "fsdprun: --numa-binding node: CUDA_VISIBLE_DEVICES has names, and NVML tells none: NVML: Driver Not Loaded" "$(cat "$WORK/err")"
FAKE_NVML=hang "${bound[@]}" true < /dev/null > "$WORK/never.out" 2> "$WORK/never.err" & never=$! # its end is looked at below
asked() { pgrep -P "$(pgrep -P "$(pgrep -P "$1")")"; } # guard, agent, who looks, and its NVML
for signal in INT:130 TERM:143; do
  FAKE_NVML=hang "${bound[@]}" echo ran < /dev/null > "$WORK/out" 2> "$WORK/err" & pid=$!
  check "NVML is asked, and hangs" wait_until 25 asked $pid
  nvml=$(asked $pid) began=$(date +%s)
  kill -s "${signal%:*}" $pid; wait $pid; status=$?
  check_eq "SIG${signal%:*} ends that at once: ${signal#*:}" "${signal#*:}" $status
  check "before NVML is given up" in_good_time 20000 $((($(date +%s) - began) * 1000))
  check_eq "one line" "fsdprun: stopped by SIG${signal%:*}" "$(cat "$WORK/out" "$WORK/err")"
  check "who asked is gone" wait_until 20 test ! -e "/proc/$nvml"
done

# Of two nodes, the other hears from the one that is not fit, and neither waits for the join timeout.
port=$(port_block)
node() {
  begin "node$2" env "$1" timeout -k 5 1200 "$FSDPRUN" --nnodes 2 --node-rank "$2" \
    --rdzv-endpoint "127.0.0.1:$port" --insecure --numa-binding node --no-python true
}
node "FAKE_NVML=$FAKE_NVML" 0
check "node 0 hosts" wait_until 60 has node0 "this node hosts"
node FAKE_NVML=refuse 1
check_ends "two nodes, one of them not fit: 78 on both" "78 78" node0 node1
for i in 0 1; do
  check_match "node $i says why" "numa-binding node: .*Driver Not Loaded" "$(tail -n 1 "node$i.out")"
done

wait $never; status=$?
check_eq "an NVML that never answers: 78" 78 $status
check_eq "after 30 s, in one line" \
  "fsdprun: --numa-binding node: CUDA_VISIBLE_DEVICES has names, and NVML tells none: NVML crashed, or gave no answer in 30 s" \
  "$(cat "$WORK/never.out" "$WORK/never.err")"
