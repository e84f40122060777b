# The tables of tests/conformance/README.md and tests/promises.md are true: a source has the test that each
# row names.
# Every script of this folder has a row in the first, and every section of the documents is in the second.
source tests/support/shell/harness.sh
cd tests || exit 1
# rows PAGE FOLDER: the last column of each row is a part of the name of a test in a file below FOLDER,
# wherever that is. Leaves the names of these files in $WORK/files. Comments are no tests, nor is what is said
# where one is skipped.
rows() {
  local page=$1 name n=0
  git ls-files "$2*test_*.sh" "$2*test_*.c" "$2*.py" | xargs grep -nvE '^ *(#|\*|/\*)' |
    sed 's/skip "[^"]*" "[^"]*"//' > "$WORK/lines"
  : > "$WORK/files"
  while IFS= read -r name; do
    n=$((n + 1))
    grep -F -- "$name" "$WORK/lines" | cut -d : -f 1 | sort -u > "$WORK/here"
    [ -s "$WORK/here" ] || not_ok "$page names tests that are there" "no test has: $name"
    cat "$WORK/here" >> "$WORK/files"
  done < <(sed -nE '/^\| (case|promise|what) \|/,/^$/s/^\|.*\| `([^|]*)` \|$/\1/p' "$page")
  check "$page has a table, and every row of it is true" [ "$n" -gt 100 -a "$n_failed" = 0 ]
}
rows conformance/README.md conformance/
for script in conformance/test_*.sh; do
  [ "$script" = conformance/test_names.sh ] || check "README.md has a test of $script" grep -qx "$script" "$WORK/files"
done

rows promises.md ""
check_eq "promises.md: every row of its tables was looked at" "$(grep '^| ' promises.md | grep -vc '^| promise ')" \
  "$(grep -cE '^\|[^|]*\| `[^|]*` \|$' promises.md)"
check_match "scripts/find-test.sh finds a test by its name" '^system/test_restart\.sh:[0-9]+:' \
  "$(../scripts/find-test.sh 'four ranks killed, four restarts: 0')"
check_eq "... and has a line for every script" "$(git ls-files '*/test_*.sh' | wc -l)" \
  "$(../scripts/find-test.sh | grep -cE '^[a-z]+/test_[a-z0-9_]+\.sh +[^ ]')"
# sections PAGE: its headings, as promises.md has them below the page's own
sections() { sed -n '/^```/,/^```/d; s/^## //p' "../$1"; }
for page in README.md SECURITY.md docs/operations.md; do
  check_eq "promises.md has the sections of $page" "$(sections "$page")" \
    "$(awk -v page="## $page" '/^## /{ here = $0 == page } here && /^### / && $0 != "### Top" { print substr($0, 5) }' promises.md)"
  check_eq "every link of $page leads to a file" "" \
    "$(cd "../$(dirname "$page")" && grep -oE '\]\([^)#:]+' "$(basename "$page")" | cut -c 3- | sort -u | while read -r file; do [ -e "$file" ] || echo "$file"; done)"
done
# A test can get another name without a change of a document: those outside tests/ name none.
grep -rhoE '^[A-Za-z_]*(Test|TEST)\(([^,]*, )?[a-z0-9_]+, [a-z0-9_]+' unit | sed -E 's/.*[( ]([a-z0-9_]+), ([a-z0-9_]+)$/`\1\/\2`/' > "$WORK/unit"
check "unit tests are found" [ "$(wc -l < "$WORK/unit")" -gt 1000 ]
mapfile -t documents < <(git ls-files ':(top)*.md' ':(top,exclude)tests')
check_eq "no document outside tests/ names a test" "" \
  "$(grep -noE '\btest_[a-z0-9_]+' "${documents[@]}"; grep -noFf "$WORK/unit" "${documents[@]}")"
# The parts of scripts/nightly.sh are functions of it, or the scripts that name them.
parts=$(../scripts/nightly.sh --list | awk '{ print $1 }')
in_scripts=$(sed -n 's/^# Nightly: //p' */test_*.sh | sort -u)
check_eq "every part that a script names is one of scripts/nightly.sh" "" "$(comm -23 <(echo "$in_scripts") <(sort <<< "$parts"))"
check_eq "every nightly part has something to run" "" \
  "$(for part in $parts; do grep -qx "$part" <<< "$in_scripts" || grep -q "^part_${part//-/_}() {" ../scripts/nightly.sh || echo "$part"; done)"
check_eq "a script that runs make in the build folder shares it, or runs alone" "" \
  "$(grep -lE '^[^#]*(make .*BUILD="\$BUILD"|scripts/quickstart\.sh)' */test_*.sh | xargs grep -LE '^# (Shares: the build folder, in which it runs make|Alone)$')"
