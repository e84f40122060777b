#!/usr/bin/env bash
# Finds tests by their names: what documents say of a test is its name, so that a file can be renamed or moved
# alone.
#   scripts/find-test.sh             every script and every unit test suite, with its file and what it shows
#   scripts/find-test.sh NAME...     where the source has tests whose names contain NAME: "FILE:LINE: text"
# Exit status 1 if there is no such test.
set -u
cd "$(dirname "$0")/../tests" || exit 1
sources() { git ls-files '*/test_*.sh' '*/test_*.c' '*/cli_torchrun.py'; }

if [ $# -gt 0 ]; then
  # Comments, and what is said where a test is skipped, are no names.
  mapfile -t files < <(sources)
  for name; do
    grep -nF -- "$name" "${files[@]}" | grep -vE '^[^:]*:[0-9]+: *(#|\*|/\*)' |
      sed 's/skip "[^"]*" "[^"]*"//' | grep -F -- "$name" || exit 1
  done
  exit
fi
sources | while read -r file; do
  # The first sentence of the first comment.
  printf '%-48s %s\n' "$file" "$(sed -nE '/^#!/d; /^(# |\/\*| \* )/!q; s/^(# |\/\* ?| \* )//p' "$file" |
    tr '\n' ' ' | sed -E 's/ *\*\/.*//; s/\. .*/./; s/^ *//' | cut -c -150)"
done
