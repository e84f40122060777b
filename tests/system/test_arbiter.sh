# Who leads is decided in a directory that three hosts share: each has a mount with caches of its own, in which
# names and attributes are believed for a minute (tests/support/fakes/far_fuse.c). The agents have nothing but
# the arbiter (tests/support/fakes/arbiter_agent.c).
. tests/support/shell/harness.sh
lease_ms=3000
declare -A fuse agent
at_exit() {
  kill -CONT "${agent[@]}" 2> /dev/null
  kill -KILL "${agent[@]}" 2> /dev/null
  kill -USR2 "${fuse[@]}" 2> /dev/null
  umount -l "$WORK"/host-? 2> /dev/null
  wait
}

# start HOST SEAT first|member: its agent; its port is 100HOST
start() {
  "$TOY/arbiter_agent" "$WORK/host-$1" "100$1" "$2" "$lease_ms" "$3" >> "$WORK/log-$1" 2>&1 & agent[$1]=$!
}
said() { grep -qE -- "$2" "$WORK/log-$1"; }
# check_says HOST PATTERN NAME: the agent says that, in its time
check_says() {
  if wait_until 15 said "$1" "$2"; then ok "$3"; else not_ok "$3" "$(cat "$WORK"/log-?)"; fi
}
# time_of HOST PATTERN: when it said that
time_of() { grep -m 1 -E -- "$2" "$WORK/log-$1" | cut -d ' ' -f 1; }

mkdir "$WORK/run"
for host in 1 2 3; do
  mkdir "$WORK/host-$host"
  "$TOY/far_fuse" "$WORK/host-$host" "$WORK/run" "$WORK/mounted-$host" 60 2 & fuse[$host]=$!
  wait_until 5 test -e "$WORK/mounted-$host" -o ! -d "/proc/${fuse[$host]}/fd"
  if [ ! -e "$WORK/mounted-$host" ]; then
    skip "three hosts see one directory" "a file system of ours needs root and /dev/fuse"
    exit
  fi
done

# The members look first: that there is no record is in their caches too.
start 2 0 member
start 3 10 member # ten seats later: half a lease
wait_until 5 test -e "$WORK/run/leader/record"
start 1 0 first
check_says 1 ' leads 1 after 0, fence 0$' "the first leads at once"
check_says 2 ' follows 1 at 1001$' "another host sees it"
check_says 3 ' follows 1 at 1001$' "and a third"

kill -USR1 "${fuse[1]}"
check_says 1 ' deposed: ' "a leader whose file system does not answer is deposed"
check_says 2 ' leads 2 after 1001, fence ' "the lowest seat takes over"
check_says 3 ' follows 2 at 1002$' "and the third follows it"
check "the old leader stopped before" test "$(time_of 1 ' deposed: ')" -le "$(time_of 2 ' leads 2 ')"
kill -USR2 "${fuse[1]}"
check_says 1 ' follows 2 at 1002$' "and follows when its file system answers again"

kill -STOP "${agent[2]}"
check_says 1 ' leads 3 after 1002, fence ' "a leader that stands still is replaced"
check_says 3 ' follows 3 at 1001$' "and the third follows once more"
kill -CONT "${agent[2]}"
check_says 2 ' deposed: ' "it learns that when it wakes"
check_says 2 ' follows 3 at 1001$' "and follows"

kill -KILL "${agent[1]}"
killed=$(($(cut -d ' ' -f 1 /proc/uptime | tr -d .) * 10))
check_says 2 ' leads 4 after 1001, fence ' "a leader that is killed is replaced"
fence=$(sed -nE 's/.* leads 4 after 1001, fence //p' "$WORK/log-2")
check "within 3 leases, its fence included" test "$((fence - killed))" -le "$((lease_ms * 3))"

check_says 3 ' follows 4 at 1002$' "which the third sees"
kill -TERM "${agent[2]}"
check_says 2 ' ended 7$' "a leader ends the run"
check_says 3 ' ended 7$' "and the other learns it"
wait "${agent[3]}"
check_eq "all is released" 0 $?
check_eq "each term was taken once" "term-1 term-2 term-3 term-4" "$(cd "$WORK/run/leader" && echo term-*)"
