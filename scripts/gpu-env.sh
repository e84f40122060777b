# Sourced by every script that runs on a GPU: is there one, and where are the libraries that the plug-in
# opens?

# gpu_here [DEV]: is there a device node of an NVIDIA GPU? A container may have any of them, not only nvidia0.
gpu_here() {
  local node
  for node in "${1:-/dev}"/nvidia[0-9]*; do [ -e "$node" ] && return; done
  return 1
}

# LD_LIBRARY_PATH as the caller set it. PyTorch runs with this one, so that it finds its own libraries.
export FSDP_GPU_CALLER_LIBRARY_PATH=${FSDP_GPU_CALLER_LIBRARY_PATH-${LD_LIBRARY_PATH:-}}

# The folders of libraries of the CUDA toolkit: that of nvcc, else the usual place.
toolkit_folders() {
  local nvcc root
  nvcc=$(command -v nvcc) && root=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd) || root=/usr/local/cuda
  printf '%s\n' "$root/lib64" "$root/lib" "$root/targets/$(uname -m)-linux/lib"
}
# The folder that PyTorch is installed into, if it is. The package is looked up, not imported: that would take
# seconds.
pytorch_place() {
  "${FSDP_BENCH_PYTHON:-python3}" -c 'import importlib.util, os
spec = importlib.util.find_spec("torch")
if spec: print(os.path.dirname(spec.submodule_search_locations[0]))' 2> /dev/null
}
# The folders of the libraries that are installed next to it.
pytorch_folders() {
  local place folder
  place=$(pytorch_place)
  for folder in ${place:+"$place"/nvidia/*/lib}; do [ ! -d "$folder" ] || echo "$folder"; done
}
# first_in NAME FOLDER...: the first file NAME, or NAME.<version>, in the folders
first_in() {
  local name=$1 folder file; shift
  for folder; do
    for file in "$folder/$name" "$folder/$name".*; do [ -e "$file" ] && { echo "$file"; return; }; done
  done
  return 1
}
# loader_has NAME: the file that the loader would take: from LD_LIBRARY_PATH, else from its cache
loader_has() {
  local folders
  IFS=: read -r -a folders <<< "${LD_LIBRARY_PATH:-}"
  first_in "$1" ${folders[@]+"${folders[@]}"} ||
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null | awk -v name="$1" 'index($1, name) == 1 && !n++ { print $NF } END { exit !n }'
}
# The names that the plug-in opens, or is linked with, and what cuDNN opens to compile its engines.
gpu_libraries="libcublasLt.so libnccl.so.2 libcudnn.so.9 libnvrtc.so"

# find_gpu_libraries: adds to LD_LIBRARY_PATH, at its end, the folders of the libraries that the loader would
# not find without.
find_gpu_libraries() {
  local name file beyond=
  for name in $gpu_libraries; do
    loader_has "$name" > /dev/null && continue
    # Asking Python takes a moment: once, and only where something is missing.
    [ -n "$beyond" ] || beyond=$(toolkit_folders; pytorch_folders)
    file=$(IFS=$'\n'; first_in "$name" $beyond) || continue
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${file%/*}
    export LD_LIBRARY_PATH
  done
}
# where_gpu_libraries: a line for each: its name and its file, or "not found"
where_gpu_libraries() {
  local name
  for name in $gpu_libraries; do
    case $name in
    libnccl.so.2) echo "$name ${FSDP_NCCL_LIBRARY:-$(loader_has $name || echo not found)}" ;;
    libcudnn.so.9) echo "$name ${FSDP_CUDNN_LIBRARY:-$(loader_has $name || echo not found)}" ;;
    *) echo "$name $(loader_has "$name" || echo not found)" ;;
    esac
  done
}
# has_nccl: a world of one needs none
has_nccl() { [ -n "${FSDP_NCCL_LIBRARY:-}" ] || loader_has libnccl.so.2 > /dev/null; }

# nccl_shares: does NCCL take two ranks on one GPU, where NCCL_MULTI_RANK_GPU_ENABLE=1 is set? From 2.30 on.
# Prints why not.
nccl_shares() {
  local library
  library=${FSDP_NCCL_LIBRARY:-$(loader_has libnccl.so.2)}
  [ -n "$library" ] || { echo "no NCCL here"; return 1; }
  grep -q NCCL_MULTI_RANK_GPU_ENABLE "$library" || { echo "$library does not know NCCL_MULTI_RANK_GPU_ENABLE: it is older than 2.30"; return 1; }
}

# at_most SECONDS COMMAND...: within the bound, else 124 or 137. FSDP_GPU_LIMIT_S is a bound for all in its
# place: a machine that is much slower than a GPU needs it, the emulated device. The command stays in the
# process group of its caller, which may have a bound too.
at_most() {
  local seconds=${FSDP_GPU_LIMIT_S:-$1}; shift
  timeout --foreground -k 3 "$seconds" "$@"
}
