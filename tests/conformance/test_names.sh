# The table of README.md is true: each script it names is here and has the test it names, and no script is left out.
source tests/support/harness.sh
cd tests/conformance || exit 1
rows=0
while IFS='|' read -r _ case script name _; do
  script=${script//[ \`]/} name=${name# \`} name=${name%\` }
  rows=$((rows + 1))
  [ -f "$script" ] || { not_ok "README.md names scripts that are there" "$script, for$case"; continue; }
  grep -qF -- "$name" "$script" || not_ok "README.md names tests that are there" "$script has no: $name"
done < <(grep -E '^\|[^|]*\| *`?test_[a-z_0-9]*\.sh`? *\|' README.md)
check "README.md has a table, and every row of it is true" [ "$rows" -gt 100 -a "$n_failed" = 0 ]
for script in test_*.sh; do
  [ "$script" = test_names.sh ] || check "README.md has $script" grep -qF "| $script |" README.md
done
[ "$n_failed" = 0 ]
