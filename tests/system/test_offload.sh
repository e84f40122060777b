# parallel.offload: nvme: the same bits with the optimizer's state in a file, at any world size and through
# checkpoints; what goes wrong with the file is one line; nothing of it is left behind.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job() {
  run_job "$WORK/$1.log" --nproc-per-node "$2" "$WORK/job.yaml" --set "run.name=$1" --set "train.steps=$3" "${@:4}"
}
nvme=(--set parallel.offload=nvme)
in_memory() { [ "$(stat -f -c %T "$1")" = tmpfs ]; }
if in_memory "$WORK"; then
  skip "optimizer state in a file" "the tests' directory is in memory (tmpfs)"
  exit 0
fi

for W in 1 3; do
  job plain$W $W 10
  check_eq "$W ranks train with the state in memory" 0 $?
  job nvme$W $W 10 "${nvme[@]}"
  check_eq "$W ranks train with the state in a file" 0 $?
  check_eq "$W ranks: every figure is bit-identical" "$(figures "$WORK/runs/plain$W")" "$(figures "$WORK/runs/nvme$W")"
  check_eq "$W ranks: so are weights and state" "$(payloads "$WORK/runs/plain$W/checkpoints/step-00000010")" \
    "$(payloads "$WORK/runs/nvme$W/checkpoints/step-00000010")"
  check_eq "$W ranks: no file is left" "" "$(ls -A "$WORK/runs/nvme$W/offload")"
done

# Saved at three ranks in a file, gone on with at two: as from memory to memory.
for name in plain nvme; do
  options=(); [ $name = nvme ] && options=("${nvme[@]}" --set "parallel.offload_dir=$WORK/disk")
  cp -r "$WORK/runs/${name}3" "$WORK/runs/${name}2"
  job ${name}2 2 20 "${options[@]}"
  check_eq "$name: two ranks go on from three ranks' step 10" 0 $?
done
check_eq "with the same figures" "$(figures "$WORK/runs/plain2")" "$(figures "$WORK/runs/nvme2")"
check_eq "and the same bits in the end" "$(payloads "$WORK/runs/plain2/checkpoints/step-00000020")" \
  "$(payloads "$WORK/runs/nvme2/checkpoints/step-00000020")"
check_eq "offload_dir was made, and is empty" "" "$(ls -A "$WORK/disk")"


# What cannot be.
: > "$WORK/file"
job nodir 2 5 "${nvme[@]}" --set "parallel.offload_dir=$WORK/file" --set launch.max_restarts=0
check_eq "a directory that cannot be made is an I/O error" 74 $?
said() { cat "$WORK/runs/$1"/logs/g*/rank*/stderr.log; }
check_eq "said once" 1 "$(said nodir | grep -c '^fsdp-train: .*file (optimizer state): create directory ')"
if [ -d /dev/shm ] && in_memory /dev/shm; then
  job tmpfs 2 5 "${nvme[@]}" --set "parallel.offload_dir=/dev/shm/fsdp-offload-$$" --set launch.max_restarts=0
  check_eq "a directory in memory is refused" 78 $?
  check_eq "with one line" 1 "$(said tmpfs | grep -c '^fsdp-train: parallel.offload_dir: .* is in memory (tmpfs): name a directory on a disk$')"
  rmdir "/dev/shm/fsdp-offload-$$"
else
  skip "a directory in memory is refused" "/dev/shm is no tmpfs"
fi
job nokey 2 5 --set "parallel.offload_dir=$WORK/disk"
check_eq "a directory without offload: nvme is a mistake" 78 $?
check_match "which is named" 'parallel.offload_dir: is for parallel.offload: nvme' "$(cat "$WORK/nokey.log")"

# A disk that is full: of 8 MiB, where the state takes more.
full() {
  unshare -m bash -c 'mount -o loop "$0/image" "$0/small" && shift && "$@"' "$WORK" x \
    "$BIN/fsdprun" "$WORK/job.yaml" --nproc-per-node 1 --set run.name=full --set train.steps=12 --set launch.max_restarts=0 \
    --set model.dim=256 --set model.heads=4 "$@" > "$WORK/full.log" 2>&1 < /dev/null
}
mkdir "$WORK/small"
truncate -s 8M "$WORK/image"
if mkfs.ext4 -q "$WORK/image" 2> /dev/null && unshare -m mount -o loop "$WORK/image" "$WORK/small" 2> /dev/null; then
  full --set train.steps=5
  check_eq "a job with its state in memory saves step 5" 0 $?
  full "${nvme[@]}" --set "parallel.offload_dir=$WORK/small/offload"
  check_eq "going on with no room on the disk is an I/O error" 74 $?
  check_eq "said once" 1 \
    "$(said full | grep -c '^fsdp-train: reserve [0-9]* bytes in .*small/offload (optimizer state): No space left on device$')"
  full
  check_eq "the checkpoint stands, and training goes on from it" 0 $?
  check_match "from step 5" '"event": *"resume".*"step": *5' "$(cat "$WORK/runs/full/events.jsonl")"
else
  skip "a full disk" "no loop device can be mounted here"
fi

# What it needs, before.
plan() { "$BIN/fsdprun" plan --json configs/plan-7b.yaml "$@"; }
check_eq "in a plan the optimizer is its window of 24 MiB" 25165824 "$(plan "${nvme[@]}" | number optimizer)"
check "the file has all of it" test "$(plan "${nvme[@]}" | number offloaded)" -ge "$(plan | number optimizer)"
