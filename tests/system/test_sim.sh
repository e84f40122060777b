# Simulated nodes (tests/sim/sim.h). In every history, whatever happens to hosts and links, each message
# arrives once and in order. At most one generation runs, and nothing of an old generation is acted on. Every
# fsdprun ends with a stated status. In half of them an arbiter says who leads, and another node takes over.
# `build/test/sim SEED` replays a seed.
# A second simulation has who leads (tests/sim/arbiter/model.h): at most one agent holds, terms grow, and no
# generation begins while ranks of an old leader run, whatever the store of the arbiter does.
. tests/support/shell/harness.sh
SIM=$BUILD/test/sim

check "200 histories without a violation" "$SIM" 1 200 2
check "200 histories of who leads without a violation" "$SIM"_arbiter 1 200 2
"$SIM" 7 > "$WORK/first"
"$SIM" 7 > "$WORK/second"
check "a seed replays: the same lines twice" cmp "$WORK/first" "$WORK/second"
check_match "its last line has the digest of all lines" '^[0-9]+ events, digest [0-9a-f]{16}: no violation$' \
  "$(tail -n 1 "$WORK/first")"
