#!/usr/bin/env bash
# README.md's table of FSDP2's own cases: every row names tests that there are, or says why it is left out.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
table() { grep '^| `test_' "$SOURCE/tests/parity/README.md"; }

# Names of unit tests (suite/test) and scripts (test_x.sh) in a row's last column.
names() { awk -F'|' '{ print $4 }' | grep -oE '`[a-z_0-9]+(/[a-z_0-9]+|\.sh)`' | tr -d '`'; }
exists() {
  case $1 in
  *.sh) ls "$SOURCE"/tests/*/"$1" > /dev/null 2>&1 ;;
  *) grep -rqE "Test\((.*, )?${1%/*}, ${1#*/}[,)]" "$SOURCE/tests/unit" ;;
  esac
}

missing=$(table | names | sort -u | while read -r name; do exists "$name" || echo "$name"; done)
check_eq "every test that the table names exists" "" "$missing"
check "many are named" test "$(table | names | wc -l)" -ge 40
unreasoned=$(table | awk -F'|' '$4 !~ /`[a-z_0-9]+(\/[a-z_0-9]+|\.sh)`/ && $4 !~ /left out: .../')
check_eq "every row has a test or a reason" "" "$unreasoned"
check_status "a name that nothing has is seen" 1 exists parity_training/no_such_case

# Each stored case is at most 64 KiB.
check_eq "no stored case is larger than 64 KiB" "" "$(find "$SOURCE/tests/parity/reference" -type f -size +65536c)"
[ "$n_failed" -eq 0 ]
