# Sourced after harness.sh: two hosts in network namespaces of this test's own, joined by one veth pair.
#   netns_up || { skip ...; exit 0; }     node 0 is 10.77.77.1, node 1 is 10.77.77.2
#   on_node 0 COMMAND...                  runs a command on a host
#   cut_link / heal_link                  nftables drops every packet between them, silently
#   cut_for, reset_link                   a cut that is healed, and a reset of the connections
NETNS_TAG=fsdp$$
netns_up() {
  command -v ip > /dev/null && command -v nft > /dev/null || return 1
  ip netns add "$NETNS_TAG-0" 2> /dev/null && ip netns add "$NETNS_TAG-1" || return 1
  ip link add "v0-$$" netns "$NETNS_TAG-0" type veth peer name "v1-$$" netns "$NETNS_TAG-1" || return 1
  local i
  for i in 0 1; do
    ip -n "$NETNS_TAG-$i" addr add "10.77.77.$((i + 1))/24" dev "v$i-$$" &&
      ip -n "$NETNS_TAG-$i" link set lo up && ip -n "$NETNS_TAG-$i" link set "v$i-$$" up || return 1
  done
}
netns_down() {
  local i pids
  for i in 0 1; do
    pids=$(ip netns pids "$NETNS_TAG-$i" 2> /dev/null) && [ -n "$pids" ] && kill -9 $pids 2> /dev/null
    ip netns del "$NETNS_TAG-$i" 2> /dev/null
  done
}
on_node() { local i=$1; shift; ip netns exec "$NETNS_TAG-$i" "$@"; }
cut_link() {
  on_node 0 nft -f - << 'RULES'
table ip cut {
  chain in { type filter hook input priority 0; iifname != "lo" drop; }
  chain out { type filter hook output priority 0; oifname != "lo" drop; }
}
RULES
}
heal_link() { on_node 0 nft delete table ip cut; }
# cut_for SECONDS: cuts the link for so long.
cut_for() {
  cut_link
  pass "$1"
  heal_link
}
# pass SECONDS: lets the time pass that a disturbance lasts.
pass() { read -r -t "$1" <> <(:) || :; }
# reset_link PORT: resets the connections of node 1 to this port of node 0.
reset_link() { on_node 1 ss -K dst 10.77.77.1 dport = "$1" > /dev/null; }
