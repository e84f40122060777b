# The wheel in fresh virtual environments of Debian 12 and 13 (debootstrap), and the tarball on the same roots: jobs, a
# program, and PyTorch's FSDP2 with FSDP_TEST_PYTHON, a rank killed. auditwheel's word; and a second build elsewhere.
# Reaches Debian's packages and PyPI. A sample takes Debian 13 alone, and leaves out what is fetched for PyTorch.
# Nightly: install
# Long
# Limit: 3600 s
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh
. tests/support/shell/root.sh
case $BUILD in *asan* | *tsan*) skip "installing" "a sanitizer's programs are not for other machines"; exit 0 ;; esac
type zip patchelf > /dev/null 2>&1 || { skip "installing" "needs zip and patchelf"; exit 0; }
check "make wheel and make tarball" make -s BUILD="$BUILD" wheel tarball
wheel=$(ls "$BUILD"/fsdprun-*.whl) tarball=$(ls "$BUILD"/fsdprun-*-linux.tar.gz)
version=$(basename "$wheel" | cut -d- -f2) at=/opt/$(basename "$tarball" .tar.gz)
whole=${FSDP_NIGHTLY:-}

python=${FSDP_TEST_PYTHON:-$(command -v python3)}
if "${python:-none}" -m venv "$WORK/auditwheel" 2> /dev/null && "$WORK/auditwheel/bin/pip" install -q auditwheel > "$WORK/out" 2>&1; then
  check_match "auditwheel says manylinux_2_34" "platform tag: \"manylinux_2_34_$(uname -m)\"" \
    "$("$WORK/auditwheel/bin/auditwheel" show "$wheel" 2>&1 | tr '\n' ' ')"
  metadata='import sys, zipfile; from packaging.metadata import Metadata
Metadata.from_email(zipfile.ZipFile(sys.argv[1]).read("fsdprun-%s.dist-info/METADATA" % sys.argv[2]), validate=True)'
  check "its metadata are as specified" "$WORK/auditwheel/bin/python" -c "$metadata" "$wheel" "$version"
else
  skip "auditwheel" "it cannot be installed: $(tail -n 1 "$WORK/out" 2> /dev/null)"
fi

# The folder with PyTorch, and the version of Python that it is for.
packages= packages_version=
if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  packages_version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
fi
# What is compiled for another Python is fetched; the rest of $packages serves any.
fetch_pytorch() { # VERSION FOLDER
  local torch; torch=$("$python" -c 'import torch; print(torch.__version__.split("+")[0])') || return
  "$python" -m pip install -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$1" --target "$2" "torch==$torch" numpy
  ln -s /packages/nvidia "$2/nvidia"
}
cat > "$WORK/worker.py" << 'END'
import os
import sys

names = "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "ROLE_NAME"
# One write: ranks share their output, and with python -u each argument is a write.
print(" ".join([*(os.environ[name] for name in names), sys.prefix]) + "\n", end="")
END
want=$(printf '%s\n' "0 0 0 2 2 127.0.0.1 default /env" "1 1 0 2 2 127.0.0.1 default /env")
try_root() { # SUITE
  local suite=$1 root=$WORK/$1 minor
  MOUNTS_INSIDE=
  if ! unshare -m debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" > "$WORK/out" 2>&1; then
    skip "a root of $suite" "debootstrap: $(grep -E '^[EW]:' "$WORK/out" | tail -n 1)"
    return
  fi
  cp "$wheel" "$WORK/worker.py" "$root/tmp/" && tar xf "$tarball" -C "$root/opt"
  minor=$(inside "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  check "$suite, Python $minor: pip installs the wheel" inside "$root" sh -c 'python3 -m venv /env && /env/bin/pip install --no-index /tmp/*.whl'
  check_match "$suite: fsdprun --version" "^fsdprun $version" "$(inside "$root" /env/bin/fsdprun --version)"
  check_status "$suite: a job" 0 inside "$root" /env/bin/fsdprun --nproc-per-node 2 --run-dir /tmp/run /env/share/fsdprun/configs/quickstart.yaml $small_job
  check "$suite: ... saves" test -s "$root/tmp/run/checkpoints/step-00000002/manifest.json"
  check_status "$suite: a program" 0 inside "$root" /env/bin/fsdprun --nproc-per-node 2 /tmp/worker.py
  check_eq "$suite: ... has torchrun's environment and the Python of the venv" "$want" "$(sort "$WORK/out")"
  check_status "$suite: python -m fsdprun.wrap" 0 inside "$root" /env/bin/python -m fsdprun.wrap python -m torch.distributed.run --nproc-per-node 2 /tmp/worker.py
  check_eq "$suite: ... the same" "$want" "$(sort "$WORK/out")"
  check_status "$suite: --install-as-torchrun" 0 inside "$root" /env/bin/fsdprun --install-as-torchrun
  check_status "$suite: torchrun" 0 inside "$root" /env/bin/torchrun --nproc-per-node 2 /tmp/worker.py
  check_eq "$suite: ... the same too" "$want" "$(sort "$WORK/out")"
  check_match "$suite: the tarball's fsdprun --version" "^fsdprun $version" "$(inside "$root" "$at/bin/fsdprun" --version)"
  check_status "$suite: ... and a job" 0 inside "$root" "$at/bin/fsdprun" --nproc-per-node 2 --run-dir /tmp/run2 "$at/share/fsdprun/configs/quickstart.yaml" $small_job
  try_pytorch "$suite" "$root" "$minor"
  rm -rf "$root"
}
# FSDP2 and DCP over gloo; rank 1 is killed in step 5 and the world goes on.
try_pytorch() { # SUITE ROOT MINOR
  local suite=$1 root=$2 path=/packages
  [ -n "$packages" ] || { skip "$suite: PyTorch" "FSDP_TEST_PYTHON names none"; return; }
  MOUNTS_INSIDE="$packages /packages
$SOURCE/tests/conformance/programs /programs"
  if [ "$3" != "$packages_version" ]; then
    [ -n "$whole" ] || { skip "$suite: PyTorch" "it is fetched for Python $3 in a whole run only"; return; }
    fetch_pytorch "$3" "$WORK/fetched" > "$WORK/out" 2>&1 || { skip "$suite: PyTorch" "none for Python $3: $(tail -n 1 "$WORK/out")"; return; }
    MOUNTS_INSIDE+="
$WORK/fetched /fetched"
    path=/fetched:/packages
  fi
  mkdir "$root/tmp/recover"
  check_status "$suite: PyTorch trains by fsdprun, a rank killed" 0 inside "$root" env PYTHONPATH=$path \
    /env/bin/fsdprun --nproc-per-node 2 --max-restarts 1 /programs/recover.py /tmp/recover 6 backward 1
  check_eq "$suite: ... no step twice" "1 2 3 4 5 6" "$(cut -d' ' -f1 "$root/tmp/recover/losses" | xargs)"
  check_eq "$suite: ... the rank was killed" 1 "$(grep -c '^killed ' "$root/tmp/recover/times")"
}
if ! { [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null; }; then skip "roots of Debian 12 and 13" "needs root and mount namespaces"
elif ! command -v debootstrap > /dev/null; then skip "roots of Debian 12 and 13" "there is no debootstrap"
else for suite in ${whole:+bookworm} trixie; do try_root "$suite"; done; fi

# In another folder, without our objects. The text for the example jobs is in no commit: who has it packs it.
if [ -z "$whole" ]; then skip "a second build" "in a whole run only"
elif ! git diff --quiet HEAD; then skip "a second build" "the tree has changes that are in no commit"
else
  git clone -q "$SOURCE" "$WORK/clone"
  [ ! -d data ] || cp -r data "$WORK/clone/"
  check "the commit is built once more, in another folder" make -s -C "$WORK/clone" BUILD=build -j2 wheel tarball
  check "the wheel has the same bytes" cmp "$wheel" "$WORK/clone/build/$(basename "$wheel")"
  check "... and the tarball" cmp "$tarball" "$WORK/clone/build/$(basename "$tarball")"
fi
