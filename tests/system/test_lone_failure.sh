#!/usr/bin/env bash
# A rank that fails alone in the middle of a step: the others are told its number and words and hang nowhere, and after
# fsdp_module_reset_iteration() the run goes on to the bit. By shared memory, TCP and both.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
for shape in "1 1" "2 1" "3 1" "4 1" "2 2" "4 2" "4 4"; do
  set -- $shape
  check "a rank that fails alone stops none of $1 ranks on $2 node(s)" timeout -k 5 3000 "$TOY/lone_failure" train "$1" "$2"
done
for shape in "2 1" "4 1" "2 2" "4 2"; do
  set -- $shape
  check "a rank that does not use a block is told from the others at once, or reduces zeros; $1 ranks on $2 node(s)" \
    timeout -k 5 1200 "$TOY/lone_failure" unused "$1" "$2"
done
for shape in "2 1" "4 1" "2 2" "4 2" "4 4"; do
  set -- $shape
  check "a collective of one's own that gives up before it calls any leaves none of $1 ranks on $2 node(s) waiting" \
    timeout -k 5 600 "$TOY/lone_failure" custom "$1" "$2"
done
for shape in "2 1" "4 1" "2 2" "4 2"; do
  set -- $shape
  check "a rank that fails alone outside a step ends the call on all of $1 ranks on $2 node(s)" \
    timeout -k 5 300 "$TOY/lone_failure" outside "$1" "$2"
done
[ "$n_failed" -eq 0 ]
