#!/usr/bin/env bash
# docs/fsdp2-map.md: each test that it names is there, and each thing that it says is there names one. And
# each row of the table of tests/parity/README.md names tests that are there, or a reason.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
MAP=$SOURCE/docs/fsdp2-map.md

# there NAME: a script of that name, a unit suite, or SUITE/TEST of one.
there() {
  case $1 in
  test_*) compgen -G "$SOURCE/tests/*/$1.sh" > /dev/null ;;
  */*) grep -rqE "^[A-Za-z_]*(Test|TEST)\(([^,]*, )?${1%/*}, ${1#*/}[,)]" "$SOURCE/tests/unit" ;;
  *) grep -rqE "^[A-Za-z_]*(Test|TEST)\(([^,]*, )?$1," "$SOURCE/tests/unit" ;;
  esac
}

# rows: "HERE<tab>TESTS" of each row of the tables of four columns, their heads aside.
rows() { awk -F ' *[|] *' 'NF >= 6 && $3 != "here" && $2 !~ /^-+$/ { print $3 "\t" $4 }' "$MAP"; }

all_there() {
  local name n=0 missing=0
  while read -r name; do
    n=$((n + 1))
    there "$name" || { echo "no test: $name"; missing=1; }
  done < <(rows | cut -f 2 | grep -o '`[^`]*`' | tr -d '`' | sort -u)
  [ "$n" -ge 30 ] && [ "$missing" = 0 ]
}
# What is there is held by a test; what is not ("none", "not there") has none to name.
each_held() { ! rows | awk -F '\t' '$1 !~ /^(none|not there)/ && $2 !~ /`/' | grep .; }

table() { grep '^| `test_' "$SOURCE/tests/parity/README.md"; }
names() { awk -F'|' '{ print $4 }' | grep -oE '`[a-z_0-9]+(/[a-z_0-9]+|\.sh)`' | tr -d '`'; }
missing=$(table | names | sort -u | while read -r name; do there "${name%.sh}" || echo "$name"; done)
check_eq "every test that the table names exists" "" "$missing"
check "many are named" test "$(table | names | wc -l)" -ge 40
unreasoned=$(table | awk -F'|' '$4 !~ /`[a-z_0-9]+(\/[a-z_0-9]+|\.sh)`/ && $4 !~ /left out: .../')
check_eq "every row has a test or a reason" "" "$unreasoned"
check_eq "no stored case is larger than 64 KiB" "" "$(find "$SOURCE/tests/parity/reference" -type f -size +65536c)"

check "every test that it names is there" all_there
check "every function that it names has a test" each_held
check_status "a name that is not there is seen" 1 there no_such_suite
check_status "a test that is not there is seen" 1 there unshard/no_such_test
[ "$n_failed" -eq 0 ]
