# The command line of the binary: every option of torchrun's in every spelling; the environment; what is
# refused, and how; what is run. Then the name torchrun, one of several tasks, and completion in real shells.
# torch: launcher/test_run.py, launcher/run_test.py, launcher/launch_test.py (command line and environment).
source tests/support/shell/harness.sh
toy=$TOY/toy
cd "$WORK" || exit 1
mkdir link && ln -s "$FSDPRUN" link/torchrun
TORCHRUN=$WORK/link/torchrun
unset "${!PET_@}" "${!SLURM_@}" "${!OMPI_@}" "${!PMI@}" "${!FSDPRUN_@}" 2> /dev/null
export PYTHON_EXEC=python3
dry() { "$FSDPRUN" --dry-run --insecure "$@"; }
# has NAME LINE COMMAND...: the launch it prints has this line (where its value came from is left out, unless
# asked for)
has() {
  local name=$1 want=$2 line got; shift 2
  got=$("$@" 2> err)
  while IFS= read -r line; do
    [ "$line" = "$want" ] || [ "${line% # *}" = "$want" ] || continue
    ok "$name"
    return
  done <<< "$got"
  not_ok "$name" "\$ $*" "want: $want" "got:  $(grep "^${want%%:*}:" <<< "$got")" "$(cat err)"
}

# --- every option, by the command line and by both kinds of variables: option, value, the line of --dry-run.
# The unit tests options_forms write each of them in every spelling.
while IFS='|' read -r option value line; do
  variable=$(printf '%s' "${option//-/_}" | tr '[:lower:]' '[:upper:]')
  extra=(--nproc-per-node 12)
  case $option in
  nproc-per-node) extra=() ;;
  rdzv-backend | rdzv-id | rdzv-conf | local-addr) extra=(--nnodes 2 --rdzv-endpoint h:1) ;;
  rdzv-endpoint | master-addr) extra=(--nnodes 2) ;;
  node-rank) extra=(--nnodes 8 --rdzv-endpoint h:1) ;;
  nnodes) extra=(--rdzv-endpoint h:1) ;;
  log-keep) extra=(--log-limit 1) ;;
  esac
  if [ "$value" = - ]; then written=("--$option") value=1; else written=("--$option" "$value"); fi
  has "${written[*]}" "$line" dry "${extra[@]}" "${written[@]}" -- x
  case $option in
  numa-binding | log-limit | log-keep | forward-signals)
    has "FSDPRUN_$variable=$value" "$line" \
      env "FSDPRUN_$variable=$value" "$FSDPRUN" --dry-run --insecure "${extra[@]}" -- x
    continue ;;
  esac
  has "PET_$variable=$value" "$line" env "PET_$variable=$value" "$FSDPRUN" --dry-run --insecure "${extra[@]}" -- x
  has "FSDPRUN_$variable wins over PET_$variable" "$line" \
    env "PET_$variable=nonsense" "FSDPRUN_$variable=$value" "$FSDPRUN" --dry-run --insecure "${extra[@]}" -- x
done << 'END'
nnodes|2:4|max_nodes: 4
nproc-per-node|3|nproc_per_node: 3
rdzv-backend|c10d|rdzv_backend: "c10d"
rdzv-endpoint|h:4711|rdzv_port: 4711
rdzv-id|job7|rdzv_id: "job7"
rdzv-conf|join_timeout=7,last_call_timeout=3|join_timeout_s: 7
standalone|-|standalone: true
max-restarts|4|max_restarts: 4
max-restarts|4/60|restart_window_s: 60
role|reader|role: "reader"
log-dir|/tmp|log_dir: "/tmp"
redirects|0:3,11:2|redirects: [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]
tee|1|tee: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
local-ranks-filter|0,10|shown_local_ranks: [0, 10]
duplicate-stdout-filters|a,b,,c|duplicate_stdout_filters: ["a", "b,c"]
duplicate-stderr-filters|a|duplicate_stderr_filters: ["a"]
log-line-prefix-template|${rank}: |log_line_prefix_template: "${rank}: "
node-rank|7|node_rank: 7
master-addr|10.0.0.1|rdzv_host: "10.0.0.1"
master-port|29511|master_port: 29511
local-addr|10.0.0.2|local_addr: "10.0.0.2"
numa-binding|core-complex|numa_binding: "core-complex"
signals-to-handle|TERM,SIGUSR1|signals_to_handle: ["SIGUSR1", "SIGTERM"]
shutdown-timeout|7|shutdown_timeout_s: 7
virtual-local-rank|-|virtual_local_rank: true
module|-|command: ["python3", "-u", "-m", "x"]
no-python|-|command: ["x"]
forward-signals|USR1,SIGUSR2|forward_signals: ["SIGUSR1", "SIGUSR2"]
log-limit|2M|log_limit_bytes: 2097152
log-keep|5|log_keep: 5
END
has "where a value came from stands behind it" 'max_restarts: 3 # PET_MAX_RESTARTS' env PET_MAX_RESTARTS=3 "$FSDPRUN" --dry-run x.py
for words in "--monitor-interval 0.5" "--start-method fork" "--event-log-handler null"; do
  check_status "$words is taken, and has no effect" 0 dry $words x.py
done
check_status "--redirect=3, as torch's own tests write it" 0 "$FSDPRUN" --dry-run --redirect=3 x.py
has "a prefix that one of ours shares means torchrun's" 'log_dir: "/tmp"' dry --log-d /tmp x.py

# --- what is refused: 2, one line, nothing on stdout
refused() { # line, words...
  local want=$1; shift
  check_status "refused: $*" 2 "$FSDPRUN" "$@"
  check_eq "... in one line" "fsdprun: $want" "$(cat "$WORK/err")"
  [ ! -s "$WORK/out" ] || not_ok "... and nothing else" "$(cat "$WORK/out")"
}
refused "--n may be --nproc-per-node, --numa-binding, --no-python, --nnodes, --node-rank or --no-color" --n 2 x.py
refused "--rdzv may be --rdzv-backend, --rdzv-endpoint, --rdzv-id or --rdzv-conf" --rdzv x x.py
refused "--nnodes: must be a whole number from 1 to 65536, not 20:30" --nnodes 2:20:30 x.py
refused "--nnodes: in MIN:MAX, MIN must not be more than MAX, as in 20:2" --nnodes 20:2 x.py
refused "--nproc-per-node: must be a whole number from 1 to 4096, cpu, gpu, xpu or auto, not unknown" --nproc-per-node unknown x.py
refused "--module and --no-python exclude each other" --no-python -m x
refused "--shutdown-timeout: must be a whole number from 0 to 86400, not -5" --shutdown-timeout -5 x.py
refused "--signals-to-handle: must be names of signals, as SIGTERM,USR1; SIGZEBRA is none" --signals-to-handle SIGZEBRA x.py
refused "--rdzv-backend: etcd needs a server of its own, which nothing here does: use static or c10d, with --rdzv-endpoint" \
  --rdzv-backend etcd --rdzv-endpoint h:1 x.py
refused "--logs-specs: mine is an entry point of Python, of which there are none here: use --log-dir, --redirects and --tee" --logs-specs mine x.py
refused "--event-log-handler: console is a handler in Python, of which there are none here: events.jsonl below --log-dir has the events" \
  --event-log-handler console x.py
refused "--start-method: must be spawn, fork or forkserver, not thread" --start-method thread x.py
refused "--numa-binding: must be node, socket, exclusive or core-complex, not core" --numa-binding core x.py
refused "--monitor-interval: must be a number of at least 0, not -1" --monitor-interval -1 x.py
refused "--log-keep needs --log-limit" --log-keep 2 x.py
PET_MODULE=1 PET_NO_PYTHON=1 refused "--module and --no-python exclude each other" x
check_status "a key of --rdzv-conf that nobody knows is said, once" 0 dry --rdzv-conf zebra=1,timeout=3 x.py
check_eq "... by its name" "fsdprun: --rdzv-conf: nothing here knows of zebra" "$(cat err)"

# --- what is run
export WORK_FILES=$WORK/touched
check_status "four workers touch files named by their rank" 0 "$FSDPRUN" --nproc-per-node=4 \
  --monitor-interval=1 --start-method=spawn --no-python sh -c 'touch "$WORK_FILES.$RANK"'
check_eq "... all four" "touched.0 touched.1 touched.2 touched.3" "$(echo touched.*)"
check_eq "one worker by default, with the environment of the parent" "sentinel" \
  "$(SENTINEL=sentinel "$FSDPRUN" --no-python sh -c 'echo $SENTINEL')"
port=$(port_block)
check_eq "static with address, port and rank of the node" "127.0.0.2:$port" \
  "$("$FSDPRUN" --nnodes 1 --node-rank 0 --master-addr 127.0.0.2 --master-port $port --no-python sh -c 'echo $MASTER_ADDR:$MASTER_PORT')"
check_eq "\$local_rank, \${local_rank} and \$\$ in arguments" '0 0 $ $HOME 0.log' \
  "$("$FSDPRUN" --no-python echo '$local_rank' '${local_rank}' '$$' '$HOME' '$local_rank.log')"

# --- Python, where there is one
python=$(command -v python3 || echo "${FSDP_TEST_PYTHON:-}")
if [ -z "$python" ]; then
  skip "modules, scripts and --run-path under a real Python" "there is no python3"
else
  export PYTHON_EXEC=$python
  mkdir -p pkg && cat > pkg/mod.py << 'END'
import os, sys
if __name__ == "__main__":
    sys.stdout.write(" ".join([os.environ["RANK"], "main", os.path.basename(sys.argv[0]), *sys.argv[1:], "\n"]).replace(" \n", "\n"))
END
  touch pkg/__init__.py
  cp pkg/mod.py 'script with spaces.py'
  check_eq "-m -- module" "0 main mod.py --nnodes 3" "$("$FSDPRUN" -m -- pkg.mod --nnodes 3)"
  check_eq "a script" "0 main mod.py a" "$("$FSDPRUN" pkg/mod.py a)"
  check_eq "a script that may not be executed, and no .py" "0 main plain a" "$(cp pkg/mod.py plain; "$FSDPRUN" ./plain a)"
  check_eq "--run-path: argv is the file's, the name __main__" "0 main mod.py a \$x -b" "$("$FSDPRUN" --run-path "$WORK/pkg/mod.py" a '$x' -b)"
  check_eq "--run-path with blanks in its name" "0 main script with spaces.py it's" "$("$FSDPRUN" --run-path 'script with spaces.py' "it's")"
  check_eq "--run-path wins over --no-python and --module" "0 main mod.py" "$("$FSDPRUN" --no-python -m --run-path pkg/mod.py)"
  printf 'import os\nprint(__file__)\nraise ValueError("deep")\n' > raise.py
  check_status "--run-path: what it raises" 1 "$FSDPRUN" --run-path raise.py
  check_match "... with a traceback that names the file" 'raise.py", line 3' "$(cat err)"
  check_eq "... and __file__" "raise.py" "$(cat out)"
  check_status "--run-path of what is not there" 127 "$FSDPRUN" --run-path "$WORK/nothing.py"
  check_eq "PYTHON_EXEC names the Python" "wrapped -u pkg/mod.py" \
    "$(printf '#!/bin/sh\necho wrapped "$@"\n' > wrapper; chmod +x wrapper; PYTHON_EXEC=$WORK/wrapper \
    "$FSDPRUN" pkg/mod.py)"

  # --- called as torchrun
  cp pkg/mod.py plan; cp pkg/mod.py train.yaml; cp pkg/mod.py exec.py; printf 'print("python")\n' > prog; chmod +x prog
  check_eq "as torchrun: a script" "0 main mod.py a" "$("$TORCHRUN" pkg/mod.py a)"
  check_eq "as torchrun: what may be executed is Python's all the same" "python" "$("$TORCHRUN" prog)"
  check_eq "as torchrun: --no-python executes" "x" "$("$TORCHRUN" --no-python echo x)"
  ln -s "$WORK/wrapper" link/python3; : > x.py
  check_eq "as torchrun: the Python beside it is the one" "wrapped -u x.py" "$(env -u PYTHON_EXEC "$TORCHRUN" x.py)"
  rm link/python3 x.py
  check_status "as torchrun: a file that is not there" 127 "$TORCHRUN" nothing.py
fi
check_status "as torchrun: usage" 2 "$TORCHRUN" --zebra x.py
check_eq "... in its name" "torchrun: --zebra is no option (see torchrun --help)" "$(cat err)"
check_status "as torchrun: nothing to run" 2 "$TORCHRUN"
check_eq "... in its name" "torchrun: nothing to run: give a program (see torchrun --help)" "$(cat err)"
check_status "as torchrun: --help" 0 "$TORCHRUN" --help
check_match "... in its name" '^Usage: torchrun ' "$(head -n 1 out)"

# --- the link torchrun
mkdir own && cp "$FSDPRUN" own/fsdprun && printf '#!/bin/sh\necho theirs\n' > own/torchrun && chmod +x own/torchrun
check_status "--install-as-torchrun: beside the fsdprun that is called" 0 own/fsdprun --install-as-torchrun
check_eq "... which keeps the old one" "theirs fsdprun" "$(own/torchrun.before-fsdprun) $(readlink own/torchrun)"
check_eq "... and is torchrun from then on, by its name on PATH" "x" "$(PATH=$WORK/own:$PATH torchrun --no-python echo x)"
check_status "... twice" 0 own/fsdprun --install-as-torchrun
check_status "... but not together with a program" 2 own/fsdprun --install-as-torchrun x.py
check_status "--uninstall-as-torchrun: not by the link" 2 own/torchrun --uninstall-as-torchrun
check_status "... but by fsdprun, on PATH" 0 env PATH="$WORK/own:$PATH" fsdprun --uninstall-as-torchrun
check_eq "... which restores the old one" "theirs 2" "$(own/torchrun) $(ls own | wc -l)"
check_status "... twice" 0 own/fsdprun --uninstall-as-torchrun
own/fsdprun --install-as-torchrun > /dev/null && rm own/torchrun && printf 'newer\n' > own/torchrun
check_status "... not a torchrun that was changed since" 78 own/fsdprun --uninstall-as-torchrun
check_eq "... which stays, in one line" "newer 1" "$(cat own/torchrun) $(wc -l < "$WORK/err")"

# --- the pages
for name in "$FSDPRUN" "$TORCHRUN"; do
  check_eq "${name##*/} --help-all fits 100 columns" "" "$("$name" --help-all | awk 'length > 100')"
  check_eq "${name##*/} --help fits a screen" "" "$("$name" --help | awk 'length > 80 { print } END { if (NR > 24) print NR " lines" }')"
done
"$FSDPRUN" --help-all > help
check_eq "--help-all has every option of the table, once, at the start of a line" "$(grep -c 'OPTION_[A-Z]*, *["0-9.]\|OPTION_FLAG,' "$SOURCE/launcher/options_table.c")" \
  "$(grep -cE '^  (    |-[a-z], )--[a-z-]+' help)"
if command -v mandoc > /dev/null; then
  check_eq "the manual page is sound" "" "$(mandoc -T lint -W warning "$SOURCE/docs/man/fsdprun.1" 2>&1 | grep -v -i 'date\|cross reference')"
else skip "the manual page is sound" "mandoc is not installed"; fi

# --- one of several tasks
# Which variables of Slurm, Open MPI and MPICH say so: the unit tests scheduler.
tasks() { SLURM_STEP_ID=0 SLURM_NTASKS=$1 SLURM_STEP_NUM_TASKS=$1 "$FSDPRUN" "${@:2}" --no-python echo one; }
check_eq "one task of srun" one "$(tasks 1)"
check_status "four tasks of srun: 2" 2 tasks 4
check_match "... and what to add" '^fsdprun: .*add --nnodes 4 ' "$(cat "$WORK/err")"
check_eq "... and nothing is run" "" "$(cat "$WORK/out")"
check_eq "--standalone says that worlds of one are meant" one "$(tasks 4 --standalone)"
printf 'data: {path: /nothing}\n' > job.yaml
check_status "a job is refused as well" 2 env SLURM_STEP_ID=0 SLURM_NTASKS=4 "$FSDPRUN" job.yaml
check_status "with --nnodes the scheduler's word is taken" 0 env SLURM_STEP_ID=0 SLURM_NTASKS=4 "$FSDPRUN" \
  --dry-run --insecure --nnodes 4 --rdzv-endpoint h x.py

# --- completion
complete_in_bash() { # words..., the last is what is completed
  bash --norc --noprofile -c 'source <("$0" --print-completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fsdprun; printf "%s\n" "${COMPREPLY[@]}"' \
    "$FSDPRUN" fsdprun "$@" | paste -sd ' '
}
check_eq "bash: an option" "--nproc-per-node" "$(complete_in_bash --nproc)"
check_eq "bash: several" "--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf" "$(complete_in_bash --rdzv)"
check_eq "bash: a value" "spawn" "$(complete_in_bash --start-method s)"
check_eq "bash: a value behind an equals sign" "core-complex" "$(complete_in_bash --numa-binding = c)"
check_eq "bash: what is Python's is not offered" "" "$(complete_in_bash --logs)"
check_eq "bash: after a value that looks like a program" "--tee" "$(complete_in_bash --log-dir logs --te)"
check_eq "bash: after a program nothing is ours" "" "$(complete_in_bash --tee 3 x.py --te)"
check_eq "bash: after a job file it is" "--set" "$(complete_in_bash job.yaml --set)"
check_eq "bash: a key of --set" "train.steps=" "$(complete_in_bash job.yaml --set train.st)"
check_eq "bash: the words that it takes" "cpu cuda" "$(complete_in_bash job.yaml --set run.device = c)"
check_eq "bash: nothing for a number" "" "$(complete_in_bash job.yaml --set train.steps =)"
check_eq "bash: and it goes on after that" "--nproc-per-node" "$(complete_in_bash job.yaml --set train.steps = 4 --nproc)"
check_eq "bash: every option" "$(grep -oE '^  (    |-[a-z], )--[a-z-]+' help | sed 's/.*--/--/' | grep -v logs-specs | sort | paste -sd ' ')" \
  "$(complete_in_bash -- | tr ' ' '\n' | sort | paste -sd ' ')"
check_eq "bash: a subcommand" "plan ps plot" "$(cd "$(mktemp -d "$WORK/empty.XXXX")" && complete_in_bash p)"
check_eq "bash: or a file" "stop stop.py" "$(cd "$(mktemp -d "$WORK/empty.XXXX")" && touch stop.py && complete_in_bash sto)"
check_eq "bash: an option of a command over jobs" "--rank" "$(complete_in_bash logs --r)"
check_eq "bash: none of which is offered after a job file" "" "$(complete_in_bash job.yaml sto)"
# Documents name subcommands in code: in blocks, and between backquotes.
named_in_documents() {
  (cd "$SOURCE" && git ls-files -z '*.md' 'configs/*' ':(exclude)tests' | xargs -0 cat) |
    awk '/^```/ { code = !code; next } code || /^    / { print; next }
      { n = split($0, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' |
    grep -oE '^ *([$#] +|srun +(-[^ ]+ +)*|[A-Z_]+=[^ ]+ +)*fsdprun +[a-z]+( |$)' | awk '{ print $NF }' | sort -u
}
for word in $(named_in_documents; cd "$(mktemp -d "$WORK/empty.XXXX")" && complete_in_bash ""); do
  "$FSDPRUN" "$word" --help > page 2>&1 || not_ok "the subcommand $word, which completion or a document names, is built" "$(cat page)"
done
check "documents name subcommands" [ "$(named_in_documents | wc -l)" -gt 10 ]
# a job whose name a shell must not expand
export XDG_RUNTIME_DIR=$WORK/runtime
mkdir -m 700 "$XDG_RUNTIME_DIR" "$WORK/temporary"
export TMPDIR=$WORK/temporary # jobs of other tests are listed below the usual one
"$FSDPRUN" -q --rdzv-id 'odd $(touch expanded) name' -- "$TOY/toy" touch=odd-up hang 2> /dev/null & odd=$!
at_exit() { kill -KILL "$odd" 2> /dev/null; }
wait_until 20 test -s odd-up
jobs_in_bash() { PATH=$BIN:$PATH complete_in_bash "$@"; }
check_eq "bash: a job, by its name or id" 'odd\ \$\(touch\ expanded\)\ name '"$odd" \
  "$(jobs_in_bash stop odd) $(jobs_in_bash status --json "${odd:0:2}")"
check_eq "bash: its name is not expanded" 1 "$(test -e expanded; echo $?)"
check_eq "bash: ps takes no job" "" "$(jobs_in_bash ps odd)"
check "bash: as torchrun" grep -q '^complete .* torchrun$' <("$TORCHRUN" --print-completion bash)
if command -v fish > /dev/null; then
  "$FSDPRUN" --print-completion fish > fsdprun.fish
  in_fish() {
    HOME=$WORK PATH=$BIN:$PATH fish --no-config -c 'source fsdprun.fish; complete -C $argv[1]' "$1" | cut -f 1 | paste -sd ' '
  }
  check_eq "fish: an option" "--nproc-per-node" "$(in_fish "fsdprun --nproc")"
  check_eq "fish: a value" "core-complex exclusive node socket" "$(in_fish "fsdprun --numa-binding " | tr ' ' '\n' | sort | paste -sd ' ')"
  check_eq "fish: a subcommand" "stop" "$(in_fish "fsdprun sto" | tr ' ' '\n' | grep -x stop)"
  check_eq "fish: an option of a command over jobs" "--rank" "$(in_fish "fsdprun logs --ran")"
  check_eq "fish: a key of --set, with its type" "train.steps= whole number" \
    "$(HOME=$WORK fish --no-config -c 'source fsdprun.fish; complete -C "fsdprun job.yaml --set train.ste"' | tr '\t' ' ' | grep -o '^train.steps= whole number')"
  check_eq "fish: the words that it takes" "run.device=cpu run.device=cuda" "$(in_fish "fsdprun job.yaml --set run.device=c")"
  check_eq "fish: a job" 'odd $(touch expanded) name' "$(in_fish "fsdprun stop od")"
else skip "completion in fish" "fish is not installed"; fi
if command -v zsh > /dev/null; then
  "$FSDPRUN" --print-completion zsh > _fsdprun
  check "zsh: the script is sound" zsh -n _fsdprun
  check "zsh: --since takes a time" grep -q 'logs) .*--since=\[[^]]*\]:time:' _fsdprun
  cat > zsh-complete << 'END'
zmodload zsh/zpty || exit 3
TERM=dumb zpty shell zsh -f -i
zpty -w shell "stty cols 400; PS1=; fpath=($PWD \$fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; print -r -- READY"
zpty -r -m shell line '*READY*READY*'
zpty -w -n shell "fsdprun --nproc"$'\t'
zpty -r -m shell line '*per-node*'
zpty -w -n shell "3 --numa-binding=co"$'\t'
zpty -r -m shell line '*core-complex*'
zpty -w -n shell $'\C-u'"fsdprun logs --ra"$'\t'
zpty -r -m shell line '*rank*'
zpty -w -n shell $'\C-u'"fsdprun --set train.ste"$'\t'
zpty -r -m shell line '*train.steps*'
zpty -w -n shell $'\C-u'"fsdprun --set run.device=cu"$'\t'
zpty -r -m shell line '*device=cuda*'
zpty -w -n shell $'\C-u'"fsdprun resta"$'\t'
zpty -r -m shell line '*restart*'
zpty -w -n shell $'\C-u'"fsdprun stop od"$'\t'
zpty -r -m shell line '*touch*name*'
zpty -d shell
END
  check "zsh: an option, a value and a job are completed in a terminal" env "PATH=$BIN:$PATH" timeout 1000 zsh -f zsh-complete
else skip "completion in zsh" "zsh is not installed"; fi
kill "$odd"
wait "$odd" 2> /dev/null || :
