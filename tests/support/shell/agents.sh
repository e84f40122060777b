# Sourced after harness.sh by the tests that start several agents. An agent has a NAME, which is a path
# without a suffix. Its output is in NAME.out, and its exit status in NAME.rc as soon as it has ended.

# toy_agents: goes to $WORK, and sets what scripts need that start agents of the toy. $RUN is fsdprun, $TOYW
# the toy by a name by which its processes are known, and $port the first of the script's ports.
toy_agents() {
  RUN=$FSDPRUN
  ln -s "$TOY/toy" "$WORK/toy"
  TOYW=$WORK/toy
  port=$(port_block)
  cd "$WORK" || exit 1
}
# new_secret FILE: a secret for agents, in a file that only its user may read.
new_secret() { head -c 32 /dev/urandom | base64 > "$1"; chmod 600 "$1"; }
# begin NAME COMMAND...: starts an agent in the background.
begin() {
  local name=$1
  shift
  rm -f "$name.rc"
  {
    "$@" > "$name.out" 2>&1 < /dev/null
    echo $? > "$name.rc.tmp"
    mv "$name.rc.tmp" "$name.rc"
  } 2> /dev/null &
  echo $! > "$name.pid"
}
# agent_of NAME: the pid of the fsdprun that its command, timeout(1), has started. A user would signal this
# process.
agent_of() { pgrep -P "$(pgrep -P "$(cat "$1.pid")" -x timeout)" -x fsdprun; }
signal() { kill "-$2" "$(agent_of "$1")"; }
# kill_agents: ends what is left of all agents in this directory.
kill_agents() {
  local pid
  for pid in *.pid; do signal "${pid%.pid}" KILL; done 2> /dev/null
  :
}
# ended NAME...: waits for the end of each.
ended() {
  local n
  for n in "$@"; do wait_until 90 test -e "$n.rc"; done
}
# rcs NAME...: their exit statuses, or "none".
rcs() {
  local n
  for n in "$@"; do cat "$n.rc" 2> /dev/null || echo none; done | xargs
}
# has NAME REGEX: does its output have a line that matches?
has() { grep -q -- "$2" "$1.out"; }
# lines FILE N: has the file N lines at least?
lines() { [ "$(wc -l < "$1" 2> /dev/null || echo 0)" -ge "$2" ]; }
# values KEY FILE...: the values of all lines KEY=VALUE, in order.
values() { cat "${@:2}" | sed -n "s/^$1=//p" | sort -n | xargs; }
# check_ends TITLE WANT NAME...: their exit statuses, once all have ended; shows their output where they are
# others.
check_ends() {
  local title=$1 want=$2 n
  shift 2
  ended "$@"
  check_eq "$title" "$want" "$(rcs "$@")" || for n in "$@"; do echo "--- $n ($(rcs "$n"))"; tail -n 15 "$n.out"; done >&2
}
# inner_of NAME: the pid of the agent itself, below its guard.
inner_of() { pgrep -P "$(agent_of "$1")" -x fsdprun-agent; }
# power_off NAME: its guard and its agent end at once, as if the host had lost power
power_off() { kill -KILL "$(inner_of "$1")" "$(agent_of "$1")"; }
# press_ctrl_z SECONDS NAME...: Ctrl-Z for these, and fg after so long
press_ctrl_z() {
  local n pids=() seconds=$1
  shift
  for n in "$@"; do pids+=("$(agent_of "$n")"); done
  kill -TSTP "${pids[@]}"
  read -r -t "$seconds" <> <(:) || :
  kill -CONT "${pids[@]}"
}
# stand_still SECONDS NAME...: stops these agents for so long. Their guards may stop with them.
stand_still() {
  local n pids=() seconds=$1
  shift
  for n in "$@"; do pids+=("$(inner_of "$n")" "$(agent_of "$n")"); done
  for n in "$@"; do kill -STOP "$(inner_of "$n")"; done
  read -r -t "$seconds" <> <(:) || :
  kill -CONT "${pids[@]}"
}
