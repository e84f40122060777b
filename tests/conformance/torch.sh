# Sourced after harness.sh by the scripts that need PyTorch. Ends the script with one loud skip where there is
# none; else $PYTHON is it, and `launched LAUNCHER ...` runs torchrun or fsdprun with it.
PROGRAMS=$SOURCE/tests/conformance/programs
PYTHON=${FSDP_TEST_PYTHON:-}
script_name=$(basename "$0" .sh)
if [ -z "$PYTHON" ]; then
  skip "$script_name: all of it" "FSDP_TEST_PYTHON names no Python with PyTorch 2.15; CI has one"
  exit 0
fi
version=$("$PYTHON" -c 'import torch; print(torch.__version__)' 2> "$WORK/err")
case $version in
2.15.*) ;;
*) not_ok "$script_name: FSDP_TEST_PYTHON has PyTorch 2.15" "it has: ${version:-none}" "$(tail -n 3 "$WORK/err")"; exit 1 ;;
esac
TORCHRUN=$(dirname "$PYTHON")/torchrun
# Without more words torchrun looks the name localhost up, which a bare system (no /etc/hosts, no network)
# does not know.
by_address=(--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --local-addr 127.0.0.1)
export PYTHON_EXEC=$PYTHON # what both launchers start a .py file with

# launched LAUNCHER OPTIONS...: with output in $WORK/out and $WORK/err; a run that hangs is ended after five
# minutes.
launched() {
  local launcher=$1; shift
  timeout -k 5 3000 "$launcher" "$@" > "$WORK/out" 2> "$WORK/err" < /dev/null
}
# empty_dir NAME: a fresh one below $WORK, printed
empty_dir() { rm -rf "${WORK:?}/$1"; mkdir "$WORK/$1"; echo "$WORK/$1"; }
# what a run that failed said last, into the log of this script
why() { tail -n 30 "$WORK/out" "$WORK/err" >&2; }
