# A kernel that lacks a call, and a machine without /proc: one line says what is missing, or what cannot be
# promised.
. tests/support/shell/harness.sh
case $BUILD in *asan* | *tsan*) skip "old systems" "a sanitizer needs clone3 and /proc"; exit 0 ;; esac
F=$BIN/fsdprun A=$BIN/fsdp-agent
without() { local call=$1; shift; timeout -s KILL 60 "$BUILD/test/without" "$call" "$@"; }

if without clone3 true; then
  for call in pidfd_open pidfd_send_signal waitid; do
    check_status "without $call no run is begun" 78 without $call "$F" "$TOY/toy" say=ran
    check_eq "one line names $call, and nothing ran" "1 1 0" \
      "$(wc -l < "$WORK/err") $(grep -c "lacks $call.*Linux 5\.[0-9] or newer" "$WORK/err") $(wc -c < "$WORK/out")"
  done
  check_status "nor does the daemon begin" 78 without pidfd_open "$A" --socket "$WORK/own/s"
  check_match "which says why" "lacks pidfd_open" "$(cat "$WORK/err")"
  check_status "without close_range a run goes on" 0 without close_range "$F" "$TOY/toy" say=ran
  check_eq "after one line on what is not closed" "1 1" "$(wc -l < "$WORK/err") $(grep -c 'lacks close_range' "$WORK/err")"
  check_status "without clone3 nothing is different" 0 without clone3 "$F" "$TOY/toy" say=ran
  check_eq "and nothing is said" "ran 0" "$(cat "$WORK/out") $(wc -c < "$WORK/err")"
else
  skip "kernels that lack a call" "no seccomp filter can be set here"
fi

no_proc() { timeout -s KILL 60 unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"; }
if no_proc true 2> /dev/null; then
  check_status "without /proc a run goes on" 0 no_proc "$F" "$TOY/toy" say=ran
  check_eq "after one line on what may outlive it" "ran 1 1" \
    "$(cat "$WORK/out") $(wc -l < "$WORK/err") $(grep -c '/proc is not there.*may outlive the run' "$WORK/err")"
  check_status "with --quiet, too" 0 no_proc "$F" -q "$TOY/toy" say=ran
  check_eq "and without the line" 0 "$(wc -c < "$WORK/err")"
else
  skip "a machine without /proc" "needs root and mount namespaces"
fi
