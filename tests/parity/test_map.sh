#!/usr/bin/env bash
# docs/fsdp2-map.md: each test that it names is there, and each thing that it says is there names one.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
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

check "every test that it names is there" all_there
check "every function that it names has a test" each_held
check_status "a name that is not there is seen" 1 there no_such_suite
check_status "a test that is not there is seen" 1 there unshard/no_such_test
[ "$n_failed" -eq 0 ]
