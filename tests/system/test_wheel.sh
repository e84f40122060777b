# The wheel: what is in the archive, that it runs where an installer puts it, and, where there is a Python, that pip
# takes it into a fresh virtual environment and removes it whole. FSDP_TEST_PYTHON, or python3. No network.
# Long
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh
. tests/support/shell/root.sh
case $BUILD in *asan* | *tsan*) skip "the wheel" "a sanitizer's programs are not for other machines"; exit 0 ;; esac
type zip unzip patchelf > /dev/null 2>&1 || { skip "the wheel" "needs zip, unzip and patchelf"; exit 0; }
check "make wheel" make -s BUILD="$BUILD" wheel
wheel=$(ls "$BUILD"/fsdprun-*.whl)
version=$(basename "$wheel" | cut -d- -f2)
check_match "its name says glibc 2.34, and any Python 3" "^fsdprun-[0-9.]+-py3-none-manylinux_2_34_$(uname -m)\.whl\$" "$(basename "$wheel")"
at=$WORK/at info=$WORK/at/fsdprun-$version.dist-info data=$WORK/at/fsdprun-$version.data
check "it unpacks" unzip -q "$wheel" -d "$at"
field() { sed -n "s/^$1: //p" "$info/$2"; }
check_eq "the name" fsdprun "$(field Name METADATA)"
check_eq "... the version" "$("$FSDPRUN" --version | awk 'NR == 1 { print $2 }')" "$(field Version METADATA)"
check_eq "... and the tag are those of the file's name" "$(basename "$wheel" .whl)" "fsdprun-$version-$(field Tag WHEEL)"
check_match "the license is named" "^BSD-3-Clause;" "$(field License METADATA)"
check "... and there" cmp "$SOURCE/LICENSE" "$info/licenses/LICENSE"
check "the license of each library is there" test -s "$data/data/share/doc/fsdprun/licenses/libdnnl2"
# RECORD's sums, as sha256sum reads them.
sums() {
  local path sum
  while IFS=, read -r path sum _; do
    [ -n "$sum" ] || continue
    echo "$(echo "${sum#sha256=}=" | basenc --base64url -d | od -An -v -tx1 | tr -d ' \n')  $path"
  done < "$info/RECORD"
}
check_eq "RECORD has every file" "$(cd "$at" && find . -type f -printf '%P\n' | LC_ALL=C sort)" "$(cut -d, -f1 "$info/RECORD" | LC_ALL=C sort)"
sums > "$WORK/sums"
check "... with its sum" eval "cd '$at' && sha256sum --quiet --strict -c '$WORK/sums'"
check_eq "... and its size" "" "$(cd "$at" && while IFS=, read -r path _ size; do [ -z "$size" ] || [ "$(stat -c %s "$path")" = "$size" ] || echo "$path"; done < "$info/RECORD")"
newer() { objdump -T "$data"/scripts/* "$data"/data/lib/fsdprun/* | grep -oE 'GLIBC_2\.(3[5-9]|[4-9][0-9])|GLIBC_[3-9].*|GLIBCXX_3\.4\.[3-9][0-9]' | sort -u; }
check_eq "no symbol newer than glibc 2.34 and its libstdc++" "" "$(newer)"
outside() { ldd "$data"/scripts/* "$data"/data/lib/fsdprun/* | awk '$3 ~ /^\// { print $3 } /not found/' | xargs realpath | sort -u | grep -v "^$data/data/lib/fsdprun/"; }
foreign() { outside | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so'; }
check_eq "each library finds the others beside it, before it is installed too" "" "$(foreign)"

# As an installer lays it out.
mkdir -p "$WORK/prefix" && cp -r "$data/data/." "$WORK/prefix/" && cp -r "$data/scripts" "$WORK/prefix/bin"
check_match "fsdprun --version" "^fsdprun $version" "$(env -i "$WORK/prefix/bin/fsdprun" --version)"
small_job() { # PREFIX RUN
  timeout 120 "$1/bin/fsdprun" --nproc-per-node 2 --run-dir "$2" "$1/share/fsdprun/configs/quickstart.yaml" $small_job
}
check_status "a job of two ranks trains" 0 small_job "$WORK/prefix" "$WORK/run"
check "... and saves" test -s "$WORK/run/checkpoints/step-00000002/manifest.json"

python=$("${FSDP_TEST_PYTHON:-python3}" -c 'import venv, pip, sys; int(pip.__version__.split(".")[0]) < 23 or print(sys.executable)' 2> /dev/null)
[ -n "$python" ] || { skip "pip install" "there is no Python with venv and pip 23"; exit 0; }
env=$WORK/env
pip() { "$python" -m pip --disable-pip-version-check --python "$env/bin/python" "$@"; }
unset PYTHONPATH VIRTUAL_ENV PYTHON_EXEC
export PYTHONDONTWRITEBYTECODE=1 PATH=/usr/bin:/bin
"$python" -m venv --without-pip "$env"
files() { find "$env" ! -type d | LC_ALL=C sort; }
before=$(files)
check "pip installs it into a fresh virtual environment" pip install -q --no-index "$wheel"
check_match "fsdprun --version there" "^fsdprun $version" "$("$env/bin/fsdprun" --version)"
check_status "a job trains there" 0 small_job "$env" "$WORK/run-env"
cat > "$WORK/worker.py" << 'END'
import os
import sys

# One write: ranks share their output, and with python -u each argument is a write.
print(" ".join([os.environ["RANK"], os.environ["WORLD_SIZE"], sys.prefix]) + "\n", end="")
END
want=$(printf '%s\n' "0 2 $env" "1 2 $env")
check_status "a program by its fsdprun" 0 timeout 60 "$env/bin/fsdprun" --nproc-per-node 2 "$WORK/worker.py"
check_eq "... runs in the Python of the environment" "$want" "$(sort "$WORK/out")"
check_status "python -m fsdprun.wrap needs neither PYTHONPATH nor PATH" 0 \
  timeout 60 "$env/bin/python" -m fsdprun.wrap python -m torch.distributed.run --nproc-per-node 2 "$WORK/worker.py"
check_eq "... and starts the fsdprun beside it" "$want" "$(sort "$WORK/out")"

printf '#!/bin/sh\necho the old one\n' > "$env/bin/torchrun"
chmod +x "$env/bin/torchrun"
check_status "--install-as-torchrun" 0 "$env/bin/fsdprun" --install-as-torchrun
check_status "torchrun is fsdprun" 0 timeout 60 "$env/bin/torchrun" --nproc-per-node 2 "$WORK/worker.py"
check_eq "... of the environment" "$want" "$(sort "$WORK/out")"
check_status "--uninstall-as-torchrun" 0 "$env/bin/fsdprun" --uninstall-as-torchrun
check_eq "torchrun is the old one again" "the old one" "$("$env/bin/torchrun")"
rm "$env/bin/torchrun"
check "pip removes it" pip uninstall -q -y fsdprun
check_eq "... and leaves no file" "$before" "$(files)"

check "pip installs it below another prefix" "$python" -m pip --disable-pip-version-check install -q --no-index --prefix "$WORK/other" "$wheel"
export PYTHONPATH=$(echo "$WORK"/other/lib/python3*/site-packages)
check_status "... where fsdprun.wrap finds the fsdprun that was installed with it" 0 \
  timeout 60 "$python" -m fsdprun.wrap python -m torch.distributed.run --nproc-per-node 2 "$WORK/worker.py"
check_match "... and its ranks run" "^0 2 " "$(sort "$WORK/out")"
