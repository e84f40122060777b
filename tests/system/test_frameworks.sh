# The wheel in a virtual environment with accelerate, Lightning and transformers of PyPI: python -m fsdprun.wrap starts
# fsdprun for the launch command of each. A rank is killed, the world goes on, and the command ends with 0. FSDP_TEST_PYTHON
# names a Python with PyTorch; scripts/test-frameworks.sh fetches the rest from PyPI. No model or data is fetched.
# Nightly: install
# Long
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh
case $BUILD in *asan* | *tsan*) skip "frameworks" "a sanitizer's programs are not for other machines"; exit 0 ;; esac
type zip patchelf > /dev/null 2>&1 || { skip "frameworks" "needs zip and patchelf"; exit 0; }
[ -n "${FSDP_NIGHTLY:-}" ] || { skip "frameworks" "in a whole run only"; exit 0; }
[ -n "${FSDP_TEST_PYTHON:-}" ] || { skip "frameworks" "FSDP_TEST_PYTHON names no Python with PyTorch"; exit 0; }
frameworks=$(scripts/test-frameworks.sh 2> "$WORK/err") || { skip "frameworks" "$(tail -n 1 "$WORK/err")"; exit 0; }
check "make wheel" make -s BUILD="$BUILD" wheel

# A fresh environment: the wheel by pip, and what scripts/test-frameworks.sh has fetched.
env=$WORK/env
unset PYTHONPATH VIRTUAL_ENV PYTHON_EXEC
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 HF_HOME=$WORK/hf HF_HUB_OFFLINE=1
"$frameworks" -m venv --without-pip "$env"
folder() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
echo "import site; site.addsitedir('$(folder "$frameworks")')" > "$(folder "$env/bin/python")/frameworks.pth"
check "pip installs the wheel beside them" \
  "$FSDP_TEST_PYTHON" -m pip --disable-pip-version-check --python "$env/bin/python" install -q --no-index "$BUILD"/fsdprun-*.whl

program=$SOURCE/tests/conformance/programs/frameworks.py
wrap() { timeout 600 "$env/bin/python" -m fsdprun.wrap "$@"; }
accelerate() { wrap accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --max_restarts 1 "$@"; }
fabric() { PET_MAX_RESTARTS=1 wrap fabric run --accelerator cpu --strategy ddp --devices 2 "$@"; } # its command has no such option
lightning_run() { PYTHONPATH=$(dirname "$frameworks")/../lightning-run PET_MAX_RESTARTS=1 wrap lightning run model --accelerator cpu --strategy ddp --devices 2 "$@"; }
# Trainers of Lightning and transformers come without a command of their own.
lightning() { wrap python -m torch.distributed.run --nproc-per-node 2 --max-restarts 1 "$@"; }
transformers() { lightning "$@"; }
for framework in accelerate fabric lightning_run lightning transformers; do
  mkdir "$WORK/$framework"
  check_status "$framework: a rank is killed, and the command ends with 0" 0 $framework "$program" $framework "$WORK/$framework" || tail -n 30 "$WORK/err"
  check_eq "$framework: ... two ranks did each step once" "$(seq -f 'step %g of 2' 6)" "$(grep ^step "$WORK/$framework/lines")"
  check_eq "$framework: ... one was killed" 1 "$(grep -c ^killed "$WORK/$framework/lines")"
  check_match "$framework: ... as fsdprun says" "rank 1 .*SIGKILL" "$(cat "$WORK/err")"
  check_status "$framework: a program that fails: its status" 41 $framework "$program" fails "$WORK"
  check_match "$framework: ... and its line" "rank [01] .*exited with status 41" "$(cat "$WORK/err")"
done
check "no process is left" none_alive "$program"
