# A job needs no root, no home, no terminal, no room in /dev/shm and almost no environment.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
if [ "$(id -u)" != 0 ]; then
  skip "a job of an unprivileged user without a home" "only root can become somebody else"
  exit 0
fi
tiny_job "$WORK/job.yaml"
chmod 755 "$WORK"
mkdir "$WORK/runs" "$WORK/programs"
chmod 777 "$WORK/runs"
# The checkout may lie below a directory that nobody else may enter.
cp "$BIN/fsdprun" "$BIN/fsdp-train" "$WORK/programs"
cp tests/parity/excerpt.txt "$WORK/excerpt.txt"
nobody() {
  setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@" < /dev/null
}
job() { nobody "$WORK/programs/fsdprun" "$WORK/job.yaml" --set "data.path=$WORK/excerpt.txt" "$@"; }

check_status "nobody without a home trains" 0 job --set run.name=plain
check_eq "all steps are there" 20 "$(figures "$WORK/runs/plain" | wc -l)"
if unshare -m true 2> /dev/null; then
  # The mounts live and die with the namespace of this one command.
  without_shm() { unshare -m bash -c 'mount -t tmpfs -o ro,size=4k none /dev/shm && "$@"' bash \
    setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH=/usr/bin:/bin HOME=/nonexistent \
    "$WORK/programs/fsdprun" "$WORK/job.yaml" --set "data.path=$WORK/excerpt.txt" --set run.name=noshm < /dev/null; }
  check_status "with a read-only /dev/shm as well" 0 without_shm
  check_eq "and the figures are the same" "$(figures "$WORK/runs/plain")" "$(figures "$WORK/runs/noshm")"
else
  skip "a job with a read-only /dev/shm" "no mount namespaces here"
fi
chmod 000 "$WORK/excerpt.txt"
check_status "a data file that may not be read is status 66" 66 job --set run.name=secret
check_match "and named" 'excerpt.txt: Permission denied' "$(cat "$WORK/err")"
