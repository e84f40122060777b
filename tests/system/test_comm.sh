#!/usr/bin/env bash
# Collectives between real processes: every bit against an oracle, deaths, mismatches, stops. tests/support/comm_worker.c
# plays the agent too; several nodes are this machine under several node ranks.
. tests/support/harness.sh
C=$TOY/comm_worker
limit() { timeout -k 5 "$@"; }

for shape in "1 1" "2 1" "3 1" "4 1" "8 1"; do
  set -- $shape
  for chunk in 0 100 4096; do
    seed=$RANDOM
    check "random collectives of $1 ranks on $2 node(s), chunk $chunk, are right to the bit" limit 120 "$C" check "$1" "$2" $seed 150 $chunk
  done
done
for shape in "2 1" "3 1" "4 1" "8 1"; do
  set -- $shape
  check "ranks at odds are told, $1 ranks on $2 node(s)" limit 120 "$C" mismatch "$1" "$2"
  check "a killed rank is an error on all others, $1 ranks on $2 node(s), 50 times" limit 240 "$C" kill "$1" "$2" $RANDOM 50
  check "a rank that leaves is an error on the others, $1 ranks on $2 node(s)" limit 120 "$C" leave "$1" "$2"
  check "a stopped rank is waited for, $1 ranks on $2 node(s)" limit 120 "$C" stop "$1" "$2"
done
[ "$n_failed" -eq 0 ]
