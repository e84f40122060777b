# The tables of tests/conformance/README.md and tests/promises.md are true: each file that they name is there and has the
# test that they name. No script of this folder is left out of the first, and no section of the documents out of the second.
source tests/support/harness.sh
cd tests || exit 1
# rows PAGE FOLDER: each row names, in its last two columns, a file below FOLDER and a part of the name of a
# test in it. Comments count for nothing there, nor does what is said where a test is skipped.
rows() {
  local page=$1 folder=$2 n=0 file name
  while IFS='|' read -r _ case file name _; do
    file=$folder${file//[ \`]/} name=${name# \`} name=${name%\` }
    n=$((n + 1))
    [ -f "$file" ] || { not_ok "$page names files that are there" "$file, for$case"; continue; }
    grep -vE '^ *(#|\*|/\*)' "$file" | sed 's/skip "[^"]*" "[^"]*"//' | grep -qF -- "$name" ||
      not_ok "$page names tests that are there" "$file has no: $name"
  done < <(grep -E '^\|[^|]*\| *`?[a-z0-9/_]*test_[a-z_0-9]*\.(sh|c)`? *\|' "$page")
  check "$page has a table, and every row of it is true" [ "$n" -gt 100 -a "$n_failed" = 0 ]
}
rows conformance/README.md conformance/
for script in conformance/test_*.sh; do
  script=${script#*/}
  [ "$script" = test_names.sh ] || check "README.md has $script" grep -qF "| $script |" conformance/README.md
done

rows promises.md ""
check_eq "promises.md: every row of its tables was looked at" "$(grep '^| ' promises.md | grep -vc '^| promise ')" \
  "$(grep -cE '^\|[^|]*\| [a-z0-9/_]*test_[a-z_0-9]*\.(sh|c) \| `[^|]*` \|$' promises.md)"
# sections PAGE: its headings, as promises.md has them below the page's own
sections() { sed -n '/^```/,/^```/d; s/^## //p' "../$1"; }
for page in README.md SECURITY.md docs/operations.md; do
  check_eq "promises.md has the sections of $page" "$(sections "$page")" \
    "$(awk -v page="## $page" '/^## /{ here = $0 == page } here && /^### / && $0 != "### Top" { print substr($0, 5) }' promises.md)"
  check_eq "every link of $page leads to a file" "" \
    "$(cd "../$(dirname "$page")" && grep -oE '\]\([^)#:]+' "$(basename "$page")" | cut -c 3- | sort -u | while read -r file; do [ -e "$file" ] || echo "$file"; done)"
done
# The parts of scripts/nightly.sh are functions of it, or the scripts that name them.
parts=$(../scripts/nightly.sh --list | awk '{ print $1 }')
in_scripts=$(sed -n 's/^# Nightly: //p' */test_*.sh | sort -u)
check_eq "every part that a script names is one of scripts/nightly.sh" "" "$(comm -23 <(echo "$in_scripts") <(sort <<< "$parts"))"
check_eq "every nightly part has something to run" "" \
  "$(for part in $parts; do grep -qx "$part" <<< "$in_scripts" || grep -q "^part_${part//-/_}() {" ../scripts/nightly.sh || echo "$part"; done)"
[ "$n_failed" = 0 ]
