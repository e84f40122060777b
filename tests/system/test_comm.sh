#!/usr/bin/env bash
# Collectives between real processes: every bit against an oracle (tests/support/comm_worker.c), deaths, mismatches,
# stops (comm_faults.c). Both play the agent too; several nodes are this machine under several node ranks.
. tests/support/harness.sh
C=$TOY/comm_worker F=$TOY/comm_faults
limit() { local seconds=$1; shift; timeout -k 5 $((seconds * 10)) "$@"; }

for shape in "1 1" "2 1" "3 1" "4 1" "8 1" "2 2" "3 3" "4 4" "4 2" "8 2" "8 4"; do
  set -- $shape
  for chunk in 0 100 4096; do
    seed=$RANDOM
    check "random collectives of $1 ranks on $2 node(s), chunk $chunk, seed $seed, are right to the bit" limit 240 "$C" check "$1" "$2" $seed 100 $chunk
  done
done
for shape in "2 1" "3 1" "4 1" "8 1" "2 2" "3 3" "4 2" "8 2"; do
  set -- $shape
  check "ranks at odds are told, $1 ranks on $2 node(s)" limit 240 "$F" mismatch "$1" "$2"
  check "a killed rank is an error on all others, $1 ranks on $2 node(s), 50 times" limit 400 "$F" kill "$1" "$2" $RANDOM 50
  check "a rank that ends after its last collective hurts nobody, $1 ranks on $2 node(s)" limit 240 "$F" last "$1" "$2"
  check "a rank that leaves is an error on the others, $1 ranks on $2 node(s)" limit 240 "$F" leave "$1" "$2"
done
for shape in "2 1" "4 1" "2 2" "4 2"; do
  set -- $shape
  check "a stopped rank is waited for, $1 ranks on $2 node(s)" limit 240 "$F" stop "$1" "$2"
done
check "ranks at odds that wait in a circle are told" limit 240 "$F" circle 4 2
for shape in "2 2" "4 2"; do
  set -- $shape
  check "ranks without the token are not let in, $1 ranks on $2 node(s)" limit 240 "$F" token "$1" "$2"
done
for shape in "2 2" "4 4" "4 2"; do
  set -- $shape
  check "strangers at the TCP ports change nothing, $1 ranks on $2 node(s)" limit 240 "$C" garbage "$1" "$2" $RANDOM 30
done

# A network of our own whose every TCP packet is dropped from some moment on, without a word to either end.
CUT='nft add table inet cut; nft add chain inet cut in "{ type filter hook input priority 0; }"; nft add rule inet cut in meta l4proto tcp drop'
lonely() { limit 240 unshare -Urn sh -c 'ip link set lo up && exec "$@"' sh "$@"; }
for shape in "2 2" "4 2"; do
  set -- $shape
  for when in cut idle; do
    name="a cut network ($when) is an error on every rank, $1 ranks on $2 node(s)"
    if command -v nft > /dev/null && lonely true 2> /dev/null; then check "$name" lonely "$F" $when "$1" "$2" "$CUT"; else skip "$name" "no nft or no network namespaces here"; fi
  done
done
[ "$n_failed" -eq 0 ]
