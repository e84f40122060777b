#!/usr/bin/env bash
# tests/parity/map.md: each test that it names is there, and each thing that docs/fsdp2-map.md says is here has
# one. And each row of the table of tests/parity/README.md names tests that are there, or a reason.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
MAP=$SOURCE/docs/fsdp2-map.md TESTS=$SOURCE/tests/parity/map.md

# there NAME: a script of that name, a unit suite, or SUITE/TEST of one.
there() {
  case $1 in
  test_*) compgen -G "$SOURCE/tests/*/$1.sh" > /dev/null ;;
  */*) grep -rqE "^[A-Za-z_]*(Test|TEST)\(([^,]*, )?${1%/*}, ${1#*/}[,)]" "$SOURCE/tests/unit" ;;
  *) grep -rqE "^[A-Za-z_]*(Test|TEST)\(([^,]*, )?$1," "$SOURCE/tests/unit" ;;
  esac
}

# The rows of the document, and of these the ones that have something here; the rows of map.md with tests.
rows() { awk -F ' *[|] *' 'NF == 5 && $3 != "here" && $2 !~ /^-+$/ && $3 !~ /^('"${1:-}"')/ { print $2 }' "$MAP" | sort; }
described() { rows 'none|not there'; }
tested() { sed -n '/^## Sentences/q; s/^| \(.*\) | `[^|]* |$/\1/p' "$TESTS" | sort; }
all_there() {
  local name n=0 missing=0
  while read -r name; do
    n=$((n + 1))
    there "$name" || { echo "no test: $name"; missing=1; }
  done < <(sed -n 's/^| .* | \([^|]*\) |$/\1/p' "$TESTS" | grep -o '`[^`]*`' | tr -d '`' | sort -u)
  [ "$n" -ge 30 ] && [ "$missing" = 0 ]
}

table() { grep '^| `test_' "$SOURCE/tests/parity/README.md"; }
names() { awk -F'|' '{ print $4 }' | grep -oE '`[a-z_0-9]+(/[a-z_0-9]+|\.sh)`' | tr -d '`'; }
missing=$(table | names | sort -u | while read -r name; do there "${name%.sh}" || echo "$name"; done)
check_eq "every test that the table names exists" "" "$missing"
check "many are named" test "$(table | names | wc -l)" -ge 40
unreasoned=$(table | awk -F'|' '$4 !~ /`[a-z_0-9]+(\/[a-z_0-9]+|\.sh)`/ && $4 !~ /left out: .../')
check_eq "every row has a test or a reason" "" "$unreasoned"
check_eq "no stored case is larger than 64 KiB" "" "$(find "$SOURCE/tests/parity/reference" -type f -size +65536c)"

check "every test that map.md names is there" all_there
check "many things are here" test "$(described | wc -l)" -ge 50
check_eq "each has a row of tests" "" "$(comm -23 <(described) <(tested))"
check_eq "each row of tests is one of the document" "" "$(comm -13 <(rows -) <(tested))"
check_status "a name that is not there is seen" 1 there no_such_suite
check_status "a test that is not there is seen" 1 there unshard/no_such_test
[ "$n_failed" -eq 0 ]
