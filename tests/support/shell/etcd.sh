# Sourced after harness.sh: an etcd, with its data and output in this directory.
#   command -v etcd > /dev/null || { skip ... "$etcd_needs"; exit 0; }
#   etcd_up HOST PORT [COMMAND...]  one member. It serves at PORT, and takes PORT + 1 for its peers; COMMAND begins it.
#                                   Its output is etcd.out, and $etcd_pid its process
#   etcd_up_three PORT              three members on 127.0.0.1, which take the ports from PORT to PORT + 5. Their output
#                                   is etcd-1.out to etcd-3.out, their processes $etcd_pids, and $etcd_urls what they serve
#   etcd_leads                      the process of the one that leads
etcd_needs="there is no etcd (Debian: etcd-server)" etcd_pid= etcd_pids=() etcd_urls=

# etcd_member NAME PREFIX HOST PORT CLUSTER [COMMAND...]: begins one
etcd_member() {
  local url=http://$3:$4 peers=http://$3:$(($4 + 1))
  "${@:6}" etcd --name "$1" --data-dir "$2" --listen-client-urls "$url" --advertise-client-urls "$url" \
    --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "$5" > "$2.out" 2>&1 &
  etcd_pid=$!
  disown
}
etcd_up() {
  etcd_member one etcd "$1" "$2" "one=http://$1:$(($2 + 1))" "${@:3}"
  wait_until 30 grep -q "ready to serve client requests" etcd.out
}
etcd_up_three() {
  local i at cluster= port=$1
  for i in 1 2 3; do
    at=$((port + 2 * i - 2))
    cluster+=${cluster:+,}m$i=http://127.0.0.1:$((at + 1))
    etcd_urls+=${etcd_urls:+,}127.0.0.1:$at
  done
  etcd_pids=()
  for i in 1 2 3; do
    etcd_member m$i etcd-$i 127.0.0.1 $((port + 2 * i - 2)) "$cluster"
    etcd_pids+=("$etcd_pid")
  done
  for i in 1 2 3; do wait_until 30 grep -q "ready to serve client requests" etcd-$i.out || return 1; done
}
etcd_leads() {
  local i
  for i in 0 1 2; do
    curl -s "http://$(cut -d, -f$((i + 1)) <<< "$etcd_urls")/metrics" | grep -q '^etcd_server_is_leader 1' || continue
    echo "${etcd_pids[i]}"
    return
  done
}
