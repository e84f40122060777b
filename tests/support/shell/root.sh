# Sourced after harness.sh by the tests of what is installed on another system.
# small_job: what makes the quickstart's job end in seconds, for the text that comes with the programs
small_job="--set train.steps=2 --set model.layers=1 --set model.dim=64 --set model.seq=16 --set checkpoint.every=2
 --set optimizer.warmup_steps=0"
# inside ROOT COMMAND...: in that root, with nothing of our environment but PATH_INSIDE for its PATH, and with the
# folders "FROM TO" of MOUNTS_INSIDE, to read
inside() {
  timeout -s KILL 600 unshare -m sh -c 'root=$1; shift; mount -t proc none "$root/proc" && mount --rbind /dev "$root/dev" || exit 125
    set -f; IFS="
"
    for line in $MOUNTS_INSIDE; do mkdir -p "$root${line#* }" && mount --bind -o ro "${line% *}" "$root${line#* }" || exit 125; done
    exec env -i PATH="$PATH_INSIDE" HOME=/tmp chroot "$root" "$@"' sh "$@"
}
export PATH_INSIDE=/usr/bin:/bin:/usr/sbin:/sbin MOUNTS_INSIDE=
