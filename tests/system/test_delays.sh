# Delays of 100 ms change no bit: before gathers, before reductions, after forward, before the optimizer, and
# at all of these. Nor does a mode of resharding or prefetching. This holds by shared memory, by TCP and by
# both, also with 2 copies of 2 shards. They sleep: all at once.
# Long
. tests/support/shell/harness.sh
shapes=("2 1" "4 1" "2 2" "4 2" "4 4")
pids=()
for shape in "${shapes[@]}"; do
  timeout -k 5 3000 "$TOY/delays" run $shape > "$WORK/${shape/ /-}.out" 2>&1 &
  pids+=($!)
done
for i in "${!shapes[@]}"; do
  read -r ranks nodes <<< "${shapes[i]}"
  name="delays change no bit of $ranks ranks on $nodes node(s)"
  if wait "${pids[i]}"; then ok "$name"; else not_ok "$name" "$(tail -n 20 "$WORK/$ranks-$nodes.out")"; fi
done
