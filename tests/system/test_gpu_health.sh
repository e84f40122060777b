# The health of GPUs, with a stand-in for NVML: what is warned of, what is recorded, and a restart that waits
# for memory.
. tests/support/shell/harness.sh
export FSDP_TEST_NVML=$TOY/fake_nvml FAKE_NVML="GPU-aa@3b;GPU-bb@5e" FAKE_NVML_STATE=$WORK/state STATE=$WORK/state
GIB=1073741824
fresh() { rm -rf "$STATE" && mkdir "$STATE" && echo $GIB > "$STATE/memory"; }
# A worker waits for what it was told to see: conditions, each with a deadline.
cat > "$WORK/lib.sh" << 'END'
events=$FSDP_RUN_DIR/events.jsonl
until_seen() { # FILE PATTERN
  local i
  for ((i = 0; i < 1200; i++)); do grep -q -- "$2" "$1" 2> /dev/null && return 0; read -r -t 0.05 < <(sleep 1); done
  echo "never seen in $1: $2" >&2; exit 9
}
put() { echo "$2" > "$STATE/.$1" && mv "$STATE/.$1" "$STATE/$1"; }
END

restarts_in_silence() { FAKE_NVML=hang FAKE_NVML_STATE=$WORK "$BIN/fsdprun" --max-restarts 1 --no-python sh -c 'exit 3'; [ $? = 3 ]; }
begin_check "an NVML that does hang is no reason not to restart, 10 s later" restarts_in_silence

fresh
cat > "$WORK/warned.sh" << END
. $WORK/lib.sh
until_seen \$STATE/told 1073741824
put xid 79
until_seen \$events '"warning": "xid"'
put ecc 3
until_seen \$events '"warning": "ecc"'
put throttle 64
until_seen \$events '"warning": "throttle"'
END
check_status "a program that waits for each warning ends well" 0 "$BIN/fsdprun" --log-dir "$WORK/warned" --no-python bash "$WORK/warned.sh"
events=$(cat "$WORK"/warned/*/events.jsonl)
check_match "an XID is said with its meaning" 'GPU 0 \(0000:3b:00.0\): XID 79: it has fallen off the bus' "$(cat "$WORK/err")"
check_match "and is an event with its number" '"event": "gpu".*"warning": "xid".*"gpu": 0.*"xid": 79' "$events"
check_match "ECC errors that grow" 'GPU [01] .*3 more uncorrected ECC errors' "$(cat "$WORK/err")"
check_match "throttling by heat" 'slowed down \(reasons 0x40\)' "$(cat "$WORK/err")"
check_eq "each GPU's use is recorded once" "2" "$(grep -c '"event": "gpu_usage"' <<< "$events")"
check_match "with memory, utilisation, XIDs" '"memory_most_bytes": 1073741824.*"memory_bytes": 85899345920.*"utilisation_percent": 50.*"xids": 1' "$events"

fresh
cat > "$WORK/held.sh" << END
. $WORK/lib.sh
if [ "\$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  until_seen \$STATE/told '^1073741824'
  put memory 10737418240
  until_seen \$STATE/told '^10737418240'
  echo \$FSDP_RUN_DIR > $WORK/held.dir
  exit 1
fi
cat \$STATE/memory > $WORK/at_start
END
cat > "$WORK/free.sh" << END
FSDP_RUN_DIR=$WORK
. $WORK/lib.sh
until_seen $WORK/held.dir /
until_seen "\$(cat $WORK/held.dir)/events.jsonl" '"event": "restart"'
put memory 1073741824
END
bash "$WORK/free.sh" & helper=$!
check_status "a restart with a GPU's memory still in use" 0 "$BIN/fsdprun" --max-restarts 1 --log-dir "$WORK/held" --no-python bash "$WORK/held.sh"
wait $helper
check_eq "waits until it is free" "$GIB" "$(cat "$WORK/at_start")"
check_eq "and NVML is opened once for all generations" 1 "$(wc -l < "$STATE/asked")"

fresh
sed -i '/^cat /d' "$WORK/held.sh"
check_status "where it never is, the restart comes all the same" 0 "$BIN/fsdprun" --max-restarts 1 --log-dir "$WORK/never" --no-python bash "$WORK/held.sh"
check_match "and it is said" 'the memory of a GPU is still in use after 10 s; starting all the same' "$(cat "$WORK/err")"

# What the agent sees of a rank's GPU reaches the rank through its progress page, and rank 0's is in the
# metrics.
fresh
cat > "$WORK/job.yaml" << END
run: {name: run, log_every: 1}
data: {path: $PWD/tests/parity/excerpt.txt, tokenizer: byte}
model: {kind: transformer, layers: 1, dim: 16, heads: 2, vocab: 256, seq: 16}
train: {steps: 1000000, batch: 1}
checkpoint: {every: 0}
END
FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6 FSDP_DEVICE=cuda FAKE_NVML="GPU-aa@0;GPU-bb@1" \
  "$BIN/fsdprun" --log-dir "$WORK/shown" "$WORK/job.yaml" > "$WORK/shown.out" 2>&1 & job=$!
at_exit() { kill -TERM "$job" 2> /dev/null; }
metrics=$WORK/shown/run/metrics.jsonl
shows() { wait_until 90 grep -q -- "$1" "$metrics"; }
check "memory, utilisation and temperature" \
  shows \
  '"gpu_memory_bytes": 1073741824, "gpu_utilisation_percent": 50, "gpu_temperature_c": 60, "gpu_ecc_uncorrected": 0, "gpu_xids": 0, "gpu_throttle_reasons": 0,'
echo 2147483648 > "$STATE/.new" && mv "$STATE/.new" "$STATE/memory"; echo 64 > "$STATE/throttle"; echo 5 > "$STATE/ecc"
check "as they change" shows '"gpu_memory_bytes": 2147483648, .*"gpu_ecc_uncorrected": 5, .*"gpu_throttle_reasons": 64,'
echo 79 > "$STATE/.new" && mv "$STATE/.new" "$STATE/xid"
check "an XID" shows '"gpu_xids": 1,'
kill -TERM "$job"; wait "$job"
check "each line is JSON" "$TOY/json_check" -l "$metrics"

for mode in refuse crash hang; do
  check_status "an NVML that does $mode is no reason not to run" 0 env FAKE_NVML=$mode "$BIN/fsdprun" --no-python true
done
end_checks
check "no watcher is left behind" test -z "$(pgrep -P 1 fsdp-gpu-watch)"
