# A PyTorch program that hangs (a lock, a sleep, a collective that one rank leaves out): the Python line of the
# stuck rank is in errors.json.
# Nightly: torch
source tests/support/shell/harness.sh
source tests/conformance/torch.sh
if [ -n "${FSDP_NIGHTLY:-}" ]; then runs=50; else runs=4; fi
limit=$((3 * $(pace)))
kinds=(lock sleep missing)
# hang N: the Nth run, of two ranks. Its verdict is in $WORK/verdict.N: empty if the right rank and line are there.
hang() {
  local n=$1 kind=${kinds[$(($1 % 3))]} rank=$(($1 / 3 % 2)) line cause
  line=hangs.py:$(grep -n "# here: $kind" "$PROGRAMS/hangs.py" | cut -d : -f 1)
  timeout -k 5 2000 "$FSDPRUN" --nproc-per-node 2 --hang-timeout $limit --python-stacks --run-dir "$WORK/r$n" "$PROGRAMS/hangs.py" "$kind" $rank > "$WORK/out.$n" 2>&1 < /dev/null
  cause=$("$PYTHON" - "$WORK/r$n/errors.json" "$kind" $rank "$line" << 'END' 2>&1
import json, os, sys
path, kind, rank, line = sys.argv[1:]
cause = json.load(open(path))["cause"]
rows = cause["hang"]["rows"]
seen = [row["python"]["line"] for row in rows if row["ranks"] == rank and row["python"]]
if [os.path.basename(at) for at in seen] != [line]:
    print(f"{kind}: rank {rank} is at {seen}, not at {line}")
# Of two ranks that both wait for each other, either may be named.
if kind != "missing" and str(cause["rank"]) != rank:
    print(f"{kind}: rank {cause['rank']} is named, not rank {rank}")
END
  )
  echo "$cause" > "$WORK/verdict.$n"
}
for ((n = 0; n < runs; n += 2)); do
  hang $n &
  hang $((n + 1)) &
  wait
done
wrong=$(cat "$WORK"/verdict.* | grep -c .)
check_eq "of $runs hangs, all have the line of the stuck rank" "" "$([ "$wrong" = 0 ] || cat "$WORK"/verdict.* "$WORK"/out.0)"
check_eq "all were tried" $runs "$(ls "$WORK" | grep -c '^verdict')"
