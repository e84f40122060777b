# Where each stream of each rank goes, for every pair of --redirects and --tee of every rank, 1 to 12 ranks:
# the cases of torchrun's redirects and tee per rank (multiprocessing/api_test.py), with local ranks of two
# digits as well.
. tests/support/shell/harness.sh
F=$BIN/fsdprun

# What the stream's bit ($1) of rank $2 leads to, given its redirects $3 and its tee $4.
expect() { # adds to want_out or want_err, and to want_files
  local word=$5 bit=$1 rank=$2 r=$3 t=$4 line=
  if ((t & bit)); then line="[default$rank]:$word$rank"
  elif ! ((r & bit)); then line="$word$rank"; fi
  if ((bit == 1)); then want_out+=${line:+$line$'\n'}; else want_err+=${line:+$line$'\n'}; fi
  ! (((r | t) & bit)) || want_files+="$rank/std$word.log $word$rank"$'\n'
}
bad=0
for n in $(seq 12); do
  for k in $(seq 0 15); do # so that over all k each rank has had each of the 16 pairs
    redirects='' tees='' want_out='' want_err='' want_files='' files=''
    for ((rank = 0; rank < n; rank++)); do
      pair=$(((rank * 3 + k) % 16))
      r=$((pair % 4)) t=$((pair / 4))
      redirects+="$rank:$r," tees+="$rank:$t,"
      expect 1 $rank $r $t out
      expect 2 $rank $r $t err
    done
    # shellcheck disable=SC2016 # expanded by the worker
    "$F" --log-dir "$WORK/m" --nproc-per-node "$n" -r "${redirects%,}" -t "${tees%,}" \
      /bin/sh -c 'echo out$RANK; echo err$RANK >&2' > "$WORK/out" 2> "$WORK/err"
    rc=$?
    for file in "$WORK"/m/*/attempt_0/*/std*.log; do
      [ ! -e "$file" ] || files+="${file#"$WORK"/m/*/attempt_0/} $(< "$file")"$'\n'
    done
    got=$(sort "$WORK/out"; echo --; sort "$WORK/err"; echo --; printf '%s' "$files" | sort)
    want=$(printf '%s' "$want_out" | sort; echo --; printf '%s' "$want_err" | sort; echo --; printf '%s' "$want_files" | sort)
    rm -rf "$WORK/m"
    if [ $rc -ne 0 ] || [ "$got" != "$want" ]; then
      bad=$((bad + 1))
      [ $bad -gt 3 ] || { echo "# -r ${redirects%,} -t ${tees%,}: exit $rc"; diff <(echo "$want") <(echo "$got") | sed 's/^/# /'; }
    fi
  done
  check_eq "$n ranks: every pair of redirects and tee goes where it should" 0 $bad
  bad=0
done

# A word for all ranks, or a map of local ranks.
for good in 0 0:1 0:1,1:1; do
  check_status "streams '$good' are understood" 0 \
    "$F" --log-dir "$WORK/v" -r "$good" --nproc-per-node 2 "$TOY/toy"
done
for bad in 0:1, 11 0:1,1 1,0:1 4 x; do
  check_status "streams '$bad' are bad usage" 2 \
    "$F" -r "$bad" --nproc-per-node 2 "$TOY/toy" "touch=$WORK/started"
done
check "and start nothing" test ! -e "$WORK/started"
rm -rf "$WORK/v"

