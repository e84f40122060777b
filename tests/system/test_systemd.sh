# --save-on-signal in a unit of a real systemd: KillMode=mixed signals fsdprun alone, control-group every
# process at once.
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
source tests/support/shell/systemd.sh

prepare() { # ROOT: binaries, a job and the two units
  local mode
  mkdir -p "$1"/box/{build/bin,tests/parity}
  cp "$BUILD"/bin/{fsdprun,fsdp-train} "$1/box/build/bin/"
  cp -r tests/support "$1/box/tests/"
  cp tests/parity/excerpt.txt "$1/box/tests/parity/"
  for mode in mixed control-group; do
    cat > "$1/etc/systemd/system/job-$mode.service" << UNIT
[Unit]
DefaultDependencies=no
[Service]
KillMode=$mode
TimeoutStopSec=200
SuccessExitStatus=77
WorkingDirectory=/box
ExecStart=/box/build/bin/fsdprun --save-on-signal --nproc-per-node 2 job.yaml --set run.name=$mode --set train.steps=1000000 --set checkpoint.every=500000
ExecStopPost=/bin/sh -c 'echo \$\$SERVICE_RESULT \$\$EXIT_CODE \$\$EXIT_STATUS > /box/end'
StandardOutput=append:/box/job.out
StandardError=append:/box/job.out
UNIT
  done
  cat > "$1/box/check" << 'SCRIPT'
#!/bin/bash
cd /box
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
tiny_job job.yaml
sed -i "s|$WORK/runs|runs|" job.yaml
steps() { ls "runs/$1/checkpoints" | grep -c '^step-'; }
for way in "mixed stop" "control-group stop" "mixed kill --signal=USR1"; do
  read -r mode command <<< "$way"
  rm -rf runs end
  systemctl start job-$mode
  wait_until 90 has_logged runs/$mode 0 3 || not_ok "$mode: the job trains" "$(tail -n 5 job.out)"
  systemctl $command job-$mode
  wait_until 90 test -s end
  check_eq "KillMode=$mode, systemctl $command: 77, and one checkpoint" "success exited 77 1" "$(cat end) $(steps $mode)" || tail -n 5 job.out | sed 's/^/# /'
  check "KillMode=$mode, systemctl $command: nothing is left" wait_until 30 none_alive fsdp-train
done > tap
SCRIPT
  chmod +x "$1/box/check"
}
export BUILD
if ! systemd_box prepare /box/check; then
  skip "a save in a unit of systemd" "$box_why"
  exit 0
fi
cat "$WORK/box/tap"
check_eq "every way was tried" 6 "$(grep -c '^ok\|^not ok' "$WORK/box/tap")"
! grep -q '^not ok' "$WORK/box/tap"
