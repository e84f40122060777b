# The examples as a user runs them: alone, and launched over several ranks, with the same losses.
. tests/support/shell/harness.sh

text=$WORK/text
for i in $(seq 400); do echo "line $i of a text that is easy to learn, because it is much the same line again"; done > "$text"
example=$BUILD/examples/train_transformer

# Losses (and norms) of two logs agree to 5e-6, line by line; the norms to 1e-4, which are printed with 5
# digits.
same_losses() {
  paste "$1" "$2" | awk '
    function off(a, b) { d = a - b; if (d < 0) d = -d; return d / b }
    { n++; if ($2 != $8 || off($4, $10) > 5e-6 || off($6, $12) > 1e-4) { print; bad = 1 } }
    END { if (n != 30) { print n " lines"; bad = 1 } exit bad }'
}

check_status "the example trains alone" 0 "$example" "$text"
cp "$WORK/out" "$WORK/alone"
check "its loss falls" awk 'NR == 1 { first = $4 } { last = $4 } END { exit !(last < 0.6 * first) }' "$WORK/alone"
for ranks in 2 3; do
  check_status "fsdprun runs it on $ranks ranks" 0 "$BIN/fsdprun" --nproc-per-node $ranks -- "$example" "$text"
  cp "$WORK/out" "$WORK/ranks$ranks"
  check "$ranks ranks: the losses of one" same_losses "$WORK/ranks$ranks" "$WORK/alone"
done
check_status "without a text it says how it is used" 2 "$example"
for example in shard_runtime/examples/*.c; do
  check "$(basename "$example") uses nothing but the installed headers" \
    awk '/^#include "/ { exit 1 }' "$example"
done
