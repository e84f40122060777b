# Sourced after harness.sh: hosts in network namespaces of this test's own. Two are joined by one veth pair, more by a
# bridge in a namespace of its own.
#   netns_up [N] || { skip ...; exit 0; }  N hosts (2): node 0 is 10.77.77.1, node 1 is 10.77.77.2, and so on
#   on_node 0 COMMAND...                   runs a command on a host
#   cut_link [NODE] / heal_link [NODE]     nftables drops every packet between this host (0) and the others, silently
#   cut_for, reset_link                    a cut that is healed, and a reset of the connections
#   lose_packets / keep_packets            nftables drops some of what arrives on each host
#   pull_cable / plug_cable NODE           the host's interface goes down, or up again
NETNS_TAG=fsdp$$
# nodes: the numbers of the hosts
nodes() {
  local at
  for at in /var/run/netns/"$NETNS_TAG"-[0-9]*; do [ ! -e "$at" ] || echo "${at##*-}"; done | sort -n
}
netns_up() {
  local n=${1:-2} i
  command -v ip > /dev/null && command -v nft > /dev/null || return 1
  for ((i = 0; i < n; i++)); do ip netns add "$NETNS_TAG-$i" 2> /dev/null || return 1; done
  if [ "$n" = 2 ]; then
    ip link add "v0-$$" netns "$NETNS_TAG-0" type veth peer name "v1-$$" netns "$NETNS_TAG-1" || return 1
  else
    join_by_bridge || return 1
  fi
  for i in $(nodes); do
    ip -n "$NETNS_TAG-$i" addr add "10.77.77.$((i + 1))/24" dev "v$i-$$" &&
      ip -n "$NETNS_TAG-$i" link set lo up && ip -n "$NETNS_TAG-$i" link set "v$i-$$" up || return 1
  done
}
join_by_bridge() {
  local i
  ip netns add "$NETNS_TAG-switch" && ip -n "$NETNS_TAG-switch" link add switch type bridge &&
    ip -n "$NETNS_TAG-switch" link set switch up || return 1
  for i in $(nodes); do
    ip link add "v$i-$$" netns "$NETNS_TAG-$i" type veth peer name "port$i" netns "$NETNS_TAG-switch" &&
      ip -n "$NETNS_TAG-switch" link set "port$i" master switch up || return 1
  done
}
netns_down() {
  local i pids
  for i in $(nodes) switch; do
    pids=$(ip netns pids "$NETNS_TAG-$i" 2> /dev/null) && [ -n "$pids" ] && kill -9 $pids 2> /dev/null
    ip netns del "$NETNS_TAG-$i" 2> /dev/null
  done
}
on_node() { local i=$1; shift; ip netns exec "$NETNS_TAG-$i" "$@"; }
cut_link() {
  on_node "${1:-0}" nft -f - << 'RULES'
table ip cut {
  chain in { type filter hook input priority 0; iifname != "lo" drop; }
  chain out { type filter hook output priority 0; oifname != "lo" drop; }
}
RULES
}
heal_link() { on_node "${1:-0}" nft delete table ip cut; }
# cut_for SECONDS [NODE]: cuts the link for so long.
cut_for() {
  cut_link "${2:-0}"
  pass "$1"
  heal_link "${2:-0}"
}
# pass SECONDS: lets the time pass that a disturbance lasts.
pass() { read -r -t "$1" <> <(:) || :; }
# reset_link PORT: resets the connections of node 1 to this port of node 0.
reset_link() { on_node 1 ss -K dst 10.77.77.1 dport = "$1" > /dev/null; }
# lose_packets PERCENT: so many of the packets that arrive on any host are lost.
lose_packets() {
  local i
  for i in $(nodes); do
    on_node "$i" nft -f - << RULES || return 1
table ip loss {
  chain in { type filter hook input priority 0; iifname != "lo" numgen random mod 100 < $1 drop; }
}
RULES
  done
}
keep_packets() { local i; for i in $(nodes); do on_node "$i" nft delete table ip loss; done; }
pull_cable() { ip -n "$NETNS_TAG-$1" link set "v$1-$$" down; }
plug_cable() { ip -n "$NETNS_TAG-$1" link set "v$1-$$" up; }
