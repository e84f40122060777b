#!/usr/bin/env bash
# Programs under the thread sanitizer. `make tsan` builds them with clang and its OpenMP, whose locks the
# sanitizer understands (libarcher tells it about them); with gcc's, races are reported that are none.
. tests/support/shell/harness.sh
unset UBSAN_OPTIONS # its runtime is part of this one, and would send the reports to a file
export TSAN_OPTIONS="halt_on_error=0 exitcode=66 suppressions=$SOURCE/tests/support/shell/tsan.supp${TSAN_OPTIONS:+ $TSAN_OPTIONS}"

for program in "$BUILD"/test/tsan/*; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  "$program" > "$WORK/out" 2> "$WORK/err"
  status=$?
  case $name in
  planted_*)
    if [ $status = 66 ] && grep -q 'WARNING: ThreadSanitizer: data race' "$WORK/err"; then
      ok "$name is seen"
    else
      not_ok "$name is seen" "exit status $status" "$(tail -n 10 "$WORK/err")"
    fi ;;
  *)
    if [ $status = 0 ] && ! grep -q ThreadSanitizer "$WORK/err"; then
      ok "$name has no race"
    else
      not_ok "$name has no race" "exit status $status" "$(head -n 40 "$WORK/err")"
    fi ;;
  esac
done
exit $((n_failed > 0))
