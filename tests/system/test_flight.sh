# The last collectives of a rank are on disk when it was killed or hung, and of those that waited for it.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
RUN=$WORK/runs/tiny
"$BIN/fsdprun" "$WORK/job.yaml" --set train.steps=100000 --set checkpoint.every=0 --set launch.hang_timeout_s=$((5 * $(pace))) --max-restarts 1 \
  > "$WORK/log" 2>&1 < /dev/null &
launcher=$!
at_exit() { kill -KILL "$launcher" 2> /dev/null; }

wait_until 120 has_logged "$RUN" 0 3
killed=$(pid_of "$RUN" 0 1)
kill -KILL "$killed"
wait_until 120 has_logged "$RUN" 1 3
stopped=$(pid_of "$RUN" 1 1)
kill -STOP "$stopped"
wait "$launcher"
check_match "the stopped rank is the cause" '"class": *"hang"' "$(cat "$RUN/errors.json")"

for rank in 0 1; do
  for generation in 0 1; do
    file=$RUN/logs/g$generation/rank$rank/collectives.jsonl
    check "generation $generation, rank $rank: one line of JSON" "$TOY/json_check" "$file"
    check_match "generation $generation, rank $rank: named collectives of the world" \
      '"group": "world", "sequence": [0-9]+, "kind": "reduce_scatter", "dtype": "float32", "op": "mean", "bytes": [0-9]+' "$(cat "$file")"
    check_match "generation $generation, rank $rank: with the layer" '"kind": "all_gather", [^}]*"layer": "layers' "$(cat "$file")"
    listed=$(grep -o '"number"' "$file" | wc -l)
    check "generation $generation, rank $rank: at most the last 256, some" test "$listed" -gt 0 -a "$listed" -le 256
  done
done
check_match "the line names the rank that was killed" "\"rank\": 1, \"pid\": $killed," "$(cat "$RUN/logs/g0/rank1/collectives.jsonl")"
check_match "the rank that waited shows in what" '"seconds": null}\]}$' "$(cat "$RUN/logs/g1/rank0/collectives.jsonl")"

run_job "$WORK/good.log" "$WORK/job.yaml" --set run.name=good
check_eq "a good run leaves none" "" "$(find "$WORK/runs/good" -name collectives.jsonl)"
