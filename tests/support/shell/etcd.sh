# Sourced after harness.sh: an etcd of one member, with its data and etcd.out in this directory.
#   command -v etcd > /dev/null || { skip ... "$etcd_needs"; exit 0; }
#   etcd_up HOST PORT [COMMAND...]  serves at PORT, and takes PORT + 1 for its peers; COMMAND begins it. $etcd_pid: its process
etcd_needs="there is no etcd (Debian: etcd-server)" etcd_pid=
etcd_up() {
  local url=http://$1:$2 peers=http://$1:$(($2 + 1))
  "${@:3}" etcd --name one --data-dir etcd --listen-client-urls "$url" --advertise-client-urls "$url" \
    --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "one=$peers" > etcd.out 2>&1 &
  etcd_pid=$!
  wait_until 30 grep -q "ready to serve client requests" etcd.out
}
