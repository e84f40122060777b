# Sourced after harness.sh: a file system of its own at $disk, which fsfreeze(8) stops. Whoever writes to it then waits
# for `thaw`.
#   disk_up > /dev/null 2>&1 || { skip ... "$disk_needs"; exit 0; }
disk=$WORK/disk
disk_needs="a disk that can be frozen needs root, a loop device, mkfs.ext4 and fsfreeze"
disk_up() {
  command -v fsfreeze mkfs.ext4 > /dev/null && mkdir "$disk" && truncate -s 64M "$disk.img" &&
    mkfs.ext4 -q -F "$disk.img" && mount -o loop "$disk.img" "$disk"
}
freeze() { fsfreeze -f "$disk"; }
thaw() { fsfreeze -u "$disk"; }
disk_down() { umount -l "$disk"; }
