# fsdprun doctor: what it says of this machine, and of two nodes that meet.
# Limit: 600 s
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
at_exit() { netns_down; }
D="$BIN/fsdprun doctor"
cd "$WORK" || exit 1

# row CHECK FILE: "STATE VALUE" of a check in a --json report
row() { sed 's/}, {/}\n{/g' "$2" | sed -n "s/.*\"check\": \"$1\", \"state\": \"\([a-z]*\)\", \"value\": \"\([^\"]*\)\".*/\1 \2/p"; }

# one node
mkdir runs
began=$(date +%s%N)
$D --run-dir runs/a/b > text 2> err; status=$?
took_ms=$((($(date +%s%N) - began) / 1000000))
check "under two seconds ($took_ms ms)" in_good_time 2000 "$took_ms"
check_eq "the status is 1 where a line says fail, else 0" "$(grep -c '^  fail' text | sed 's/[1-9].*/1/')" "$status"
check_match "the last line counts" '^[0-9]+ ok, [0-9]+ warn, [0-9]+ fail$' "$(tail -n 1 text)"
check_eq "no line is longer than 80 columns" "" "$(awk 'length > 80' text)"
check_match "the run directory need not exist" "disk.writable +$WORK/runs$" "$(cat text)"
check_eq "nothing is left there" "" "$(ls -A runs)"
$D --json > report 2> err
check "--json is JSON" "$TOY/json_check" report
check_eq "each line of it has check, state, value and advice" "$(grep -o '"check"' report | wc -l)" \
  "$(grep -oE '"check": "[a-z._]+", "state": "(ok|warn|fail)", "value": ("[^"]*(\\"[^"]*)*"), "advice": (null|"[^"]+")' report | wc -l)"
check_eq "with --log-dir, the disk is that one's" "warn tmpfs" "$($D --json --log-dir /dev/shm/none > report; row disk.kept report | cut -d' ' -f1,2)"
check_status "a limit that is too low is a failure" 1 sh -c "ulimit -n 256; exec $D --json"
check_match "which says the number" "fail open files: 256" "$(row limits.files out)"
check_status "a limit on the size of files too" 1 sh -c "ulimit -f 2048; exec $D --json"
check_match "and what a save would get" "fail a synced write: File too large" "$(row disk.sync out)"
check_status "an endpoint that does not resolve" 1 $D --json --rdzv-endpoint none.invalid:29400
check_match "is named" "fail none.invalid" "$(row network.endpoint out)"
if "$TOY/without" clone3 true; then
  check_status "a kernel that lacks a call of supervision" 1 "$TOY/without" pidfd_open $D --json
  check_match "is named with what is missing" "fail this system lacks pidfd_open" "$(row kernel.supervision out)"
else
  skip "a kernel that lacks a call of supervision" "no seccomp filter can be set here"
fi
mkdir alone && cp "$BIN/fsdprun" alone
check_status "fsdprun without fsdp-train" 1 alone/fsdprun doctor --json
check_match "is no whole install" "fail fsdp-train: No such file" "$(row install.trainer out)"
check_status "a word that is neither option nor job file" 2 $D something
check_status "an option that does not exist" 2 $D --jsn
check_match "with the one that was meant" "did you mean --json" "$(cat err)"
printf 'run: {nme: x}\n' > bad.yaml
check_status "a job file that cannot be used" 78 $D bad.yaml
check_match "with its line" "bad.yaml:1:" "$(cat err)"
check_status "help" 0 "$BIN/fsdprun" help doctor
cmp -s out <($D --help) || not_ok "fsdprun help doctor is fsdprun doctor --help"

completed() { bash -c ". <($BIN/fsdprun --print-completion bash); COMP_WORDS=(fsdprun $*); COMP_CWORD=$#; _fsdprun; echo \${COMPREPLY[*]}"; }
check_eq "bash completes its own option" "--json" "$(completed doctor --js)"
check_eq "and those of fsdprun" "--rdzv-endpoint" "$(completed doctor --json --rdzv-e)"

# two nodes on this host
head -c 32 /dev/urandom | base64 > secret; chmod 600 secret
port=$(port_block)
# meet PREFIX COMMAND...: the same on two nodes, @ in it replaced by the node's number. Node N prints PREFIXN.json, and
# lines in PREFIXN.out.
meet() {
  local name=$1 n; shift
  for n in 0 1; do begin "$name$n" sh -c 'file=$1; shift; exec "$@" > "$file"' sh "$name$n.json" "${@//@/$n}"; done
  ended "$name"0 "$name"1
}
meet same $D --json --nnodes 2 --node-rank @ --rdzv-endpoint 127.0.0.1:$port --secret-file secret --run-dir runs
check "two nodes make one report" "$TOY/json_check" same0.json
check_match "with their bandwidth" '^ok median [0-9]+ MB/s; least [0-9]+ MB/s, with .*\(node 1\)' "$(row nodes.bandwidth same0.json)"
check_eq "clocks" 2 "$(row nodes.clock same0.json | grep -c '^ok [+-]0\.[0-9] ms')"
check_eq "and version" 2 "$(row nodes.version same0.json | grep -c '^ok')"
check_match "they have one run directory" "^ok $WORK/runs is the directory of" "$(row nodes.rundir same0.json)"
check_eq "the other node prints none" "" "$(cat same1.json)"
check_match "it says where the report is" 'fsdprun doctor: the report of all nodes is printed on' "$(cat same1.out)"
check_eq "both end with the same status" "$(cat same0.rc)" "$(cat same1.rc)"
check_eq "nothing is left in the run directory" "" "$(ls -A runs)"
mkdir runs/0 runs/1
meet apart $D --json --nnodes 2 --node-rank @ --rdzv-endpoint 127.0.0.1:$((port + 2)) --secret-file secret --run-dir runs/@
check_match "directories that are not the same one are told apart" "^warn $WORK/runs/0 is not the directory of" "$(row nodes.rundir apart0.json)"

# As tasks of a Slurm step, from its variables alone. srun puts what all nodes print into one output.
step="env SLURM_JOB_ID=$((port % 600)) SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=0 SLURM_STEP_NODELIST=localhost,localhost6"
meet slurm $step SLURM_NODEID=@ "SLURM_STEP_TASKS_PER_NODE=1(x2)" $D --json --insecure
cat slurm?.json > report
check "under srun no option says how many nodes there are; they print one document" "$TOY/json_check" report
check_match "with the bandwidth of both" '^ok median' "$(row nodes.bandwidth report)"
check_eq "and the other node says nothing" "" "$(grep '^fsdprun doctor: ' slurm1.out)"
text_of_step() { meet text $step SLURM_NODEID=@ "SLURM_STEP_TASKS_PER_NODE=1(x2)" $D --insecure; cat text?.json; }
text_of_step > report
check_eq "for a person too" "1 1" "$(grep -cE '^[0-9]+ ok, [0-9]+ warn, [0-9]+ fail$' report) $(grep -c ' install.trainer ' report)"
timeout 300 $step SLURM_NODEID=1 "SLURM_STEP_TASKS_PER_NODE=1(x2)" $D --json --insecure --rdzv-conf join_timeout=1 > alone.json 2> err
check_eq "a later node that does not meet the first one prints no document" "1 " "$? $(cat alone.json)"
check_match "but its trouble, with its name" '^fsdprun doctor: localhost6: fail nodes: they did not meet' "$(cat err)"

# one node alone
check_match "several nodes that nothing brings together: this one is looked at" "warn 2 are wanted" "$($D --json --nnodes 2 > report; row nodes report)"
check_status "a node that finds no other one" 1 $D --json --nnodes 2 --rdzv-endpoint 127.0.0.1:$((port + 3)) --secret-file secret --rdzv-conf join_timeout=1
check_match "says so, after what it found itself" "fail they did not meet" "$(row nodes out)"
check_match "and whether the port is free" "ok $((port + 3)) is free" "$(row network.port out)"
check_status "without a secret nodes do not meet" 2 $D --nnodes 2 --rdzv-endpoint 127.0.0.1:$((port + 4))

# two hosts
netns_up || { skip "hosts that cannot reach each other" "needs root, ip and nft for network namespaces"; exit 0; }
for n in 0 1; do
  on_node $n nft -f - << RULES
table ip wall {
  chain in { type filter hook input priority 0; iifname != "lo" tcp dport != $port tcp flags & (syn | ack) == syn drop; }
}
RULES
done
for n in 0 1; do begin wall$n on_node $n $D --json --nnodes 2 --node-rank $n --rdzv-endpoint 10.77.77.1:$port --secret-file secret; done
ended wall0 wall1
sed -n '/^\[/p' wall0.out > report
check_match "a firewall that lets only the rendezvous through is found" "^fail .* cannot reach .*: 10.77.77.[12]: Connection timed out" "$(row nodes.reach report)"
check_eq "on both nodes that is a failure" "1 1" "$(cat wall0.rc wall1.rc | xargs)"
for n in 0 1; do on_node $n nft delete table ip wall; done
if on_node 1 tc qdisc add dev "v1-$$" root tbf rate 200mbit burst 256kb latency 50ms 2> tc.err; then
  for n in 0 1; do begin thin$n on_node $n $D --json --nnodes 2 --node-rank $n --rdzv-endpoint 10.77.77.1:$((port + 1)) --secret-file secret; done
  ended thin0 thin1
  # A megabyte takes seconds: one of the two is killed meanwhile.
  on_node 1 tc qdisc change dev "v1-$$" root tbf rate 1mbit burst 32kb latency 50ms
  for n in 0 1; do begin lost$n on_node $n timeout -k 5 300 $D --json --nnodes 2 --node-rank $n --rdzv-endpoint 10.77.77.1:$((port + 2)) --secret-file secret; done
  both_measure() { [ "$(pgrep -fc -- "$BIN/fsdprun --doctor-node=")" = 2 ]; }
  check "both measure" wait_until 20 both_measure
  power_off lost1
  ended lost0
  check_match "a node that is lost meanwhile is a failure, and what this one found is printed" "1 fail .*one was lost: status 7[56]" \
    "$(cat lost0.rc) $(sed -n '/^\[/p' lost0.out > report; row nodes report)"
  check_match "a thin line is warned of" '^warn median [0-9]+ MB/s; least [12][0-9] MB/s' "$(sed -n '/^\[/p' thin0.out > report; row nodes.bandwidth report | head -n 1)"
else
  skip "a thin line is warned of" "tc: $(head -c 80 tc.err)"
fi
