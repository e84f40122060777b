# shellcheck shell=bash
# Sourced by scripts/test.sh, scripts/nightly.sh and .ci/run: runs suites one after another and adds up what
# they count.
passed=0 failed=0 skipped=0
closing='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
tally_times=() tally_failures=()

# suite TITLE COMMAND...: shows the command's output without its closing line, "N passed, N failed, N
# skipped". Adds the numbers of that line to the totals. A command without one counts as one failure. Output
# goes to stdout, stderr included.
suite() {
  local title=$1 began=$SECONDS log p f s line; shift
  log=$(mktemp)
  echo "== $title"
  "$@" 2>&1 | tee "$log" | grep --line-buffered -vE "$closing"
  line=$(grep -E "$closing" "$log" | tail -n 1)
  mapfile -t -O ${#tally_failures[@]} tally_failures < <(sed -n '/^Failed:$/,/^[^ ]/s/^  //p' "$log" | sort -u)
  rm -f "$log"
  [ -n "$line" ] || { line="0 passed, 1 failed, 0 skipped"; tally_failures+=("$title: ended without a result"); }
  read -r p _ f _ s _ <<< "${line//,/}"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  tally_times+=("$(printf '%5d s  %s: %s' $((SECONDS - began)) "$title" "$line")")
}

# one_result COMMAND...: for commands that do not count: one test, passed where the command ends with 0.
one_result() {
  if "$@"; then
    echo "1 passed, 0 failed, 0 skipped"
  else
    echo "0 passed, 1 failed, 0 skipped"
  fi
}

# tally: the failures and the time of each suite, then the totals as the last line. Returns 0 only if nothing
# failed and something passed.
tally() {
  [ ${#tally_failures[@]} -eq 0 ] || { echo "Failed:"; printf '  %s\n' "${tally_failures[@]}"; }
  echo "Times:"
  printf '%s\n' "${tally_times[@]}"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
