# A control group of the test's own, of either version, where this machine lets us make one. Sourced.
# cgroup_new NAME CONTROLLER: its folder in $CGROUP; false where there is none to be had.
cgroup_new() {
  local root
  for root in "/sys/fs/cgroup/$2" /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -e "$root/cgroup.procs" ] || continue
    if [ -e "$root/cgroup.controllers" ] && ! grep -qw "$2" "$root/cgroup.subtree_control"; then
      [ "$2" = freezer ] || continue
    fi
    CGROUP=$root/fsdp-test-$1-$$
    mkdir "$CGROUP" 2> /dev/null && return 0
  done
  CGROUP=
  return 1
}
# cgroup_end: kill what is in it, and remove it.
cgroup_end() {
  [ -n "${CGROUP:-}" ] && [ -d "$CGROUP" ] || return 0
  [ -e "$CGROUP/freezer.state" ] && echo THAWED > "$CGROUP/freezer.state"
  local p; while read -r p; do kill -KILL "$p" 2> /dev/null; done < "$CGROUP/cgroup.procs"
  wait_until 10 rmdir "$CGROUP"
  CGROUP=
}
