#!/usr/bin/env bash
# Installs what the tests need (apt; sudo when not root), builds, runs all of them.
# Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/packages.sh
install_packages $packages_build $packages_data $packages_test || exit 1
werror=${CI:+1}

echo "building"
make -s -j"$(nproc)" WERROR="$werror" tests-build || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
add() { # reads the closing line of a run
  local line
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
  if [ -z "$line" ]; then failed=$((failed + 1)); echo "$1 gave no result"; return; fi
  read -r p _ f _ s _ <<< "${line//,/}"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
echo "unit, system and parity tests"
tests/run unit system parity conformance 2>&1 | tee "$log" | grep -vE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
add tests
echo "unit tests under ASan and UBSan"
if make -s -j"$(nproc)" BUILD=build/asan SAN=address,undefined build/asan/test/unit > "$log" 2>&1; then
  BUILD=build/asan tests/run unit 2>&1 | tee "$log" | grep -vE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
  add asan
else
  tail -n 30 "$log"; failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
