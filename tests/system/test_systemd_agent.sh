# fsdp-agent as a service of a real systemd: the units that make install puts in their places, for the whole
# machine and for one user.
# Shares: the build folder, in which it runs make
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
source tests/support/shell/systemd.sh

prepare() { # ROOT: what make install installs, a job, and what differs from the units for the test
  make -s BUILD="$BUILD" DESTDIR="$1" PREFIX=/usr install > "$WORK/box/install.log" 2>&1
  mkdir -p "$1"/box/tests/parity "$1"/etc/{credstore,fsdprun} "$1"/etc/systemd/{system,user}/fsdp-agent.service.d
  cp -r tests/support "$1/box/tests/"
  cp tests/parity/excerpt.txt "$1/box/tests/parity/"
  cp "$BUILD/test/toy" "$1/box/"
  (umask 077; echo "a secret of sixteen" > "$1/etc/credstore/fsdprun.secret")
  # A shorter watchdog, an earlier start, and a line for each end.
  tee "$1"/etc/systemd/{system,user}/fsdp-agent.service.d/test.conf > /dev/null << 'UNIT'
[Service]
WatchdogSec=4
TimeoutAbortSec=1
RestartSec=100ms
ExecStopPost=+/bin/sh -c 'echo $SERVICE_RESULT >> /box/ends'
UNIT
  sed -i 's/=+/=/' "$1/etc/systemd/user/fsdp-agent.service.d/test.conf"
  # user@.service without logind.
  cat > "$1/etc/systemd/system/tester.service" << 'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=notify
User=tester
Delegate=yes
Environment=XDG_RUNTIME_DIR=/run/tester
RuntimeDirectory=tester
RuntimeDirectoryMode=0700
ExecStart=/lib/systemd/systemd --user --unit=basic.target
KillMode=mixed
UNIT
  cat > "$1/box/check" << 'SCRIPT'
#!/bin/bash
cd /box
exec > tap 2> err < /dev/null
source tests/support/shell/harness.sh
source tests/support/shell/train.sh
S=/run/fsdprun/agent.sock U=fsdp-agent.service
as_fsdp() { setpriv --reuid fsdp --regid fsdp --init-groups env HOME=/var/lib/fsdprun "$@"; }
job() { as_fsdp fsdprun --agent $S "$@"; }
show() { systemctl show -P "$1" $U; }
is() { [ "$(show "$1")" = "$2" ]; }
groups() { ls -d /sys/fs/cgroup/system.slice/$U/job-* 2> /dev/null | wc -l; }
no_groups() { [ "$(groups)" = 0 ]; }
touch ends; chmod 666 ends

systemd-sysusers fsdprun.conf && systemd-tmpfiles --create fsdprun.conf
systemctl daemon-reload
systemctl start fsdp-agent.socket
check_eq "the socket is the user's alone, and wakes nobody yet" "600 fsdp inactive" "$(stat -c '%a %U' $S) $(show ActiveState)"
check_status "the first job starts the agent" 5 job ./toy exit=5 || { systemctl status --no-pager $U; exit 1; }
check "systemd knows what it does" wait_until 20 is StatusText "serves $S, 0 jobs"
job sh -c 'grep -E "^(NoNewPrivs|Seccomp|CapEff):" /proc/self/status; sed -n "s/.*\(job-\)/\1/p" /proc/self/cgroup; echo > /usr/x; cat $CREDENTIALS_DIRECTORY/secret' > out 2> err2
check_eq "a job has the unit's limits, a group of its own, and the secret" \
  "CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 job-2 a secret of sixteen" "$(sort -k1,1 -s <(sed -n 1,3p out) <(:) | sed 's/\t/ /' | xargs) $(sed -n '4,$p' out | xargs)"
check_match "and writes nothing below /usr" 'Read-only file system' "$(cat err2)"
check_eq "nobody else reads the secret" 1 "$(setpriv --reuid nobody --regid nogroup --clear-groups cat "/run/credentials/$U/secret" > /dev/null 2>&1; echo $?)"
check "the groups of jobs that have ended are gone" wait_until 20 no_groups

echo "drain = yes" > /etc/fsdprun/agent.conf
systemctl reload $U
check "reload: it takes no new jobs" wait_until 20 is StatusText "takes no new jobs at $S, 0 jobs"
check_status "and says so" 75 job ./toy exit=0
rm /etc/fsdprun/agent.conf
systemctl reload $U
check "and again without the file" wait_until 20 is StatusText "serves $S, 0 jobs"

begin_hanging() {
  rm -f /var/lib/fsdprun/up
  job --nproc-per-node 2 ./toy daemon child "touch=/var/lib/fsdprun/up" hang & client=$!
  wait_until 20 test -s /var/lib/fsdprun/up
}
none_left() { none_alive /var/lib/fsdprun/up && no_groups; }
# The commands over jobs, as root and as another user.
has_job() { [ "$(fsdprun ps -q --agent $S | wc -l)" = 1 ]; }
begin_hanging
check "root's ps sees the job of the unit by its socket" wait_until 20 has_job
check_match "with what the job itself says" ' toy +running +1 +2 ' "$(fsdprun ps --agent $S)"
check_eq "but not among root's own" "[]" "$(fsdprun ps --json)"
check_eq "status, too" 2 "$(fsdprun status --agent $S --json toy | grep -o '"memory_bytes":[0-9]' | wc -l)"
check_eq "the unit's user sees it without the socket's name, too" "$(fsdprun ps -q --agent $S)" "$(as_fsdp fsdprun ps -q)"
check_status "others may not ask" 75 setpriv --reuid nobody --regid nogroup --clear-groups fsdprun ps --agent $S
check_status "root's stop ends it" 0 fsdprun stop --agent $S toy
wait $client
check_eq "with TERM's status" 143 $?
check "nothing of it is left" wait_until 20 none_left
begin_hanging
pid=$(show MainPID)
kill -KILL "$pid"; wait $client
check_eq "the agent is killed: fsdprun says so" 76 $?
check "nothing of its jobs is left" wait_until 20 none_left
check "another one is started" wait_until 20 is NRestarts 1
check_status "which runs jobs" 3 job ./toy exit=3

# Only the thread with the loop stands still: strace holds it for as long as it lives.
if command -v strace > /dev/null; then
  begin_hanging
  strace -qq -o /dev/null -e inject=epoll_wait,epoll_pwait:delay_enter=600000000 -p "$(show MainPID)" & tracer=$!
  check "a loop that stands still is seen" wait_until 20 is Result watchdog
  kill -KILL $tracer; wait $tracer # it would hold a process that has been killed, too
  wait $client
  check_eq "and killed" 76 $?
  check "nothing of its jobs is left either" wait_until 20 none_left
  check "and another one is started" wait_until 20 is NRestarts 2
  stuck=watchdog
else
  skip "a loop that stands still is seen" "strace is not installed"
  stuck=
fi

tiny_job job.yaml
sed -i "s|$WORK/runs|/var/lib/fsdprun/runs|; s|every: 5|every: 500000|; s|steps: 20|steps: 1000000|" job.yaml
run=/var/lib/fsdprun/runs/tiny
job job.yaml > job.out 2>&1 & client=$!
wait_until 90 has_logged $run 0 3 || not_ok "the job trains" "$(tail -n 5 job.out)"
systemctl stop $U 2> stop.err
wait $client
check_eq "stop while a job runs: it saves and ends with 77" "77 1" "$? $(ls $run/checkpoints | grep -c '^step-')"
check "nothing is left" none_left
check_eq "the socket is there for the next job" "inactive 0" "$(show ActiveState) $(job ./toy exit=0; echo $?)"
systemctl stop fsdp-agent.socket $U
check_eq "no agent that lived was killed" "$(echo signal $stuck success success)" "$(xargs < ends)"
systemctl start $U
check_eq "without the socket unit the service listens by itself" "active 0" "$(show ActiveState) $(job ./toy exit=0; echo $?)"
systemctl stop $U
check "and takes its socket away" test ! -e $S

# The user's instance.
useradd -m tester
systemctl start tester.service
as_tester() { setpriv --reuid tester --regid tester --init-groups env -C /home/tester HOME=/home/tester XDG_RUNTIME_DIR=/run/tester "$@"; }
as_tester systemctl --user start fsdp-agent.socket || not_ok "the user's systemd starts the socket"
: > ends
as_tester fsdprun --agent /run/tester/fsdp/agent.sock sh -c 'id -un; sed -n "s/.*\(fsdp-agent\)/\1/p" /proc/self/cgroup' > out 2> err2
check_eq "a user's job starts the user's agent, and has a group of its own" "tester fsdp-agent.service/job-1" "$(xargs < out)" || sed 's/^/# /' err2
as_tester systemctl --user stop fsdp-agent.service 2> stop.err
check_eq "which ends well" success "$(cat ends)"
systemctl stop tester.service
echo "# the end"
SCRIPT
  chmod +x "$1/box/check"
}

# What needs no systemd that runs.
if command -v systemd-analyze > /dev/null; then
  make -s BUILD="$BUILD" DESTDIR="$WORK/image" PREFIX=/usr install > "$WORK/install.log" 2>&1
  units=$WORK/image/usr/lib/systemd/system
  check "the unit's exposure is low" systemd-analyze security --no-pager --offline=true --threshold=30 "$units/fsdp-agent.service"
  sed -i "s|=/usr/bin/fsdp-agent|=$WORK/image/usr/bin/fsdp-agent|" "$units"/*.service "$WORK"/image/usr/share/systemd/user/*.service
  check_eq "systemd finds nothing wrong with the units" "" \
    "$(systemd-analyze verify --man=no "$units"/fsdp-agent.* 2>&1; XDG_RUNTIME_DIR=$WORK systemd-analyze verify --user --man=no "$WORK"/image/usr/share/systemd/user/fsdp-agent.* 2>&1)"
else
  skip "the unit's exposure is low" "systemd-analyze is not installed"
fi
export BUILD WORK
if ! systemd_box prepare /box/check; then
  skip "the units in a systemd" "$box_why"
  exit 0
fi
cat "$WORK/box/tap"
check "it came to its end" grep -qx '# the end' "$WORK/box/tap" || tail -n 20 "$WORK/box/err" "$WORK/box.log" | sed 's/^/# /'
! grep -q '^not ok' "$WORK/box/tap"
