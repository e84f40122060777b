# Sourced after harness.sh: a real systemd as the first process of a container, over a copy of this machine's
# files that is thrown away. Needs root and systemd-nspawn. All mounts are in a namespace of their own.

# systemd_box PREPARE SCRIPT: calls PREPARE ROOT, with the container's root directory, and then boots it to
# run SCRIPT, a path in it.
# What SCRIPT leaves in /box is then in $WORK/box. Its output is the box's. False when the box did not reach
# SCRIPT: $box_why.
systemd_box() {
  local name=fsdp$$ group
  box_why="systemd-nspawn is not installed (Debian: systemd-container)"
  command -v systemd-nspawn > /dev/null || return 1
  box_why="a container needs root"
  [ "$(id -u)" = 0 ] || return 1
  group=/sys/fs/cgroup/unified/$name
  [ -d "${group%/*}" ] || group=/sys/fs/cgroup/$name
  mkdir -p "$WORK"/{layers,root,box}
  export -f "$1"
  # It needs a control group of its own, into which the process that starts it goes.
  WORK=$WORK PREPARE=$1 SCRIPT=$2 NAME=$name GROUP=$group unshare --mount --propagation private bash -e > "$WORK/box.log" 2>&1 << 'END'
mkdir -p /run/systemd/nspawn "$GROUP"
mount -t tmpfs none /run/systemd/nspawn
mount -t tmpfs none "$WORK/layers"
mkdir "$WORK"/layers/{upper,work}
mount -t overlay none -o "lowerdir=/,upperdir=$WORK/layers/upper,workdir=$WORK/layers/work" "$WORK/root"
mkdir "$WORK/root/box"
mount --bind "$WORK/box" "$WORK/root/box"
: > "$WORK/root/etc/machine-id"
: > "$WORK/root/etc/fstab"
cat > "$WORK/root/etc/systemd/system/box.service" << UNIT
[Unit]
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'touch /box/up; exec $SCRIPT'
UNIT
"$PREPARE" "$WORK/root"
echo $BASHPID > "$GROUP/cgroup.procs"
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout -k 10 5000 systemd-nspawn -q -D "$WORK/root" --register=no --keep-unit --private-network \
  -M "$NAME" --boot systemd.unit=box.service < /dev/null
END
  for group in /sys/fs/cgroup/*/"$name" /sys/fs/cgroup/"$name"; do
    [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} \;
  done 2> /dev/null
  box_why="no container came up here: $(grep -v '^$' "$WORK/box.log" | tail -n 1)"
  [ -e "$WORK/box/up" ]
}
