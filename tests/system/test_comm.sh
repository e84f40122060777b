# Collectives between real processes that die, end, stop or are cut off (tests/support/workers/comm_faults.c,
# which plays the agent too). Several nodes are this machine under several node ranks. Every bit and all other
# faults: the unit tests comm_grid and comm_grid_faults.
. tests/support/shell/harness.sh
F=$TOY/comm_faults
limit() { local seconds=$1; shift; timeout -k 5 $((seconds * 10)) "$@"; }

# These wait for seconds, so they run at the same time as the others.
for shape in "2 1" "4 1" "2 2" "4 2"; do
  set -- $shape
  begin_check "a stopped rank is waited for, $1 ranks on $2 node(s)" limit 240 "$F" stop "$1" "$2"
done

# A network of our own whose every TCP packet is dropped from some moment on, without a word to either end.
CUT='nft add table inet cut; nft add chain inet cut in "{ type filter hook input priority 0; }"; nft add rule inet cut in meta l4proto tcp drop'
lonely() { limit 240 unshare -Urn sh -c 'ip link set lo up && exec "$@"' sh "$@"; }
for shape in "2 2" "4 2"; do
  set -- $shape
  for when in cut idle; do
    name="a cut network ($when) is an error on every rank, $1 ranks on $2 node(s)"
    if command -v nft > /dev/null && lonely true 2> /dev/null; then begin_check "$name" lonely "$F" $when "$1" \
      "$2" "$CUT"; else skip "$name" "no nft or no network namespaces here"; fi
  done
done

for shape in "2 1" "3 1" "4 1" "8 1" "2 2" "3 3" "4 2" "8 2"; do
  set -- $shape
  check "a killed rank is an error on all others, $1 ranks on $2 node(s), 50 times" limit 400 "$F" kill "$1" "$2" $RANDOM 50
  check "a rank that ends after its last collective hurts nobody, $1 ranks on $2 node(s)" limit 240 "$F" last "$1" "$2"
done
end_checks
