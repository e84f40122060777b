# A rank that fails alone in the middle of a step: the others are told its number and words and hang nowhere,
# and after fsdp_module_reset_iteration() the run goes on to the bit. By shared memory, TCP and both.
. tests/support/shell/harness.sh
# lone MODE SECONDS TITLE "RANKS NODES"...
lone() {
  local mode=$1 seconds=$2 title=$3 shape
  shift 3
  for shape; do
    check "$title: ${shape% *} ranks on ${shape#* } node(s)" \
      timeout -k 5 "$seconds" "$TOY/lone_failure" "$mode" $shape
  done
}
lone train 3000 "a rank that fails alone stops none" "1 1" "2 1" "3 1" "4 1" "2 2" "4 2" "4 4"
lone unused 1200 "a rank that does not use a block is told from the others at once, or reduces zeros" \
  "2 1" "4 1" "2 2" "4 2"
lone custom 600 "a collective of one's own that gives up before it calls any leaves none waiting" \
  "2 1" "4 1" "2 2" "4 2" "4 4"
lone outside 300 "a rank that fails alone outside a step ends the call on all" "2 1" "4 1" "2 2" "4 2"
