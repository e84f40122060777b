# Sourced by the scripts that print the path of a Python with packages of PyPI, for tests.
set -u

# environment NAME WHAT: prints the path of the Python of the virtual environment NAME below the cache directory. If it
# is not there, or was made of something else than WHAT, it is made first. The caller defines two functions:
#   make_environment PLACE   makes it in that directory
#   works PYTHON             whether it has what it should
environment() {
  local place=${XDG_CACHE_HOME:-$HOME/.cache}/fsdprun-tests/$1 what=$2
  local python=$place/bin/python
  mkdir -p "$place" || return 1
  exec 9> "$place.lock" && flock 9 || return 1 # two at once: the second finds the work done
  if [ "$(cat "$place/complete" 2> /dev/null)" != "$what" ] || ! works "$python" 2> /dev/null; then
    echo "installing $what into $place" >&2
    rm -rf "$place"
    make_environment "$place" >&2 && works "$python" >&2 && echo "$what" > "$place/complete" ||
      { echo "$what could not be installed into $place" >&2; return 1; }
  fi
  echo "$python"
}
