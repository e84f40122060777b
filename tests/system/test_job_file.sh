# Job files, settings and options as a user meets them: exact lines, documented statuses, nothing run by
# mistake.
. tests/support/shell/harness.sh
RUN=$BIN/fsdprun
cd "$WORK" || exit 1
printf 'In the beginning God created the heaven and the earth.\n' > data.txt
printf 'data: {path: data.txt}\nrun: {name: small}\nmodel: {layers: 1, dim: 64, heads: 4, vocab: 256, seq: 8}\n' > good.yaml

# bad NAME FILE_TEXT WANT: status 78, exactly these lines on stderr, nothing on stdout, no run directory.
bad() {
  printf '%b' "$2" > bad.yaml
  "$RUN" bad.yaml > out 2> err
  local status=$?
  check_eq "$1" "78 $3" "$status $(cat err)"
  [ ! -s out ] && [ ! -e runs ] || not_ok "$1: nothing else happens" "$(cat out; ls)"
}
# What else a job file may have wrong: the unit tests broken.
bad "other programs' names for keys point to ours" 'data: {path: d}\noptimizer: {learning_rate: 1, wd: 0}\ntrain: {bs: 4, max_steps: 9}\nhidden_size: 8\noptim: {lr: 1}\n' \
  'bad.yaml:2:13: optimizer.learning_rate: is no key of a job file; did you mean lr?
bad.yaml:2:31: optimizer.wd: is no key of a job file; did you mean weight_decay?
bad.yaml:3:9: train.bs: is no key of a job file; did you mean batch?
bad.yaml:3:16: train.max_steps: is no key of a job file; did you mean steps?
bad.yaml:4:1: hidden_size: is no section of a job file; did you mean model.dim?
bad.yaml:5:1: optim: is no section of a job file; did you mean optimizer?'
check_status "a job file that is not there is 78" 78 "$RUN" nowhere.yaml
check_eq "... and one line" "nowhere.yaml: cannot read the job file: No such file or directory" "$(cat err)"
check_status "another program's name in a setting is 78" 78 "$RUN" good.yaml --set train.learning_rate=1 --set bs=4
check_eq "... and points to ours" "--set 1: train.learning_rate: is no key of a job file; did you mean optimizer.lr?
--set 2: bs is not section.key; did you mean train.batch?" "$(cat err)"

# Where the values came from, and that the result is a job file again.
check_status "--dry-run" 0 env PET_NNODES=1 FSDPRUN_MAX_RESTARTS=9 "$RUN" --nproc-per-node 3 good.yaml --dry-run --set optimizer.lr=0.5 --set optimizer.lr=0.25
cp out resolved.yaml
check_match "the command line" '^  nproc_per_node: 3 +# --nproc-per-node$' "$(cat out)"
check_match "FSDPRUN_*" '^  max_restarts: 9 +# FSDPRUN_MAX_RESTARTS$' "$(cat out)"
check_match "PET_*" '^  nnodes: 1 +# PET_NNODES$' "$(cat out)"
check_match "the data beside the job file" "^  path: $WORK/data.txt +# good.yaml:1:14\$" "$(cat out)"
mkdir elsewhere
check_status "what it prints is a job file" 0 "$RUN" --dry-run elsewhere/../resolved.yaml
check_eq "... of the same job" "$(sed 's/ *#.*//' resolved.yaml)" "$(sed 's/ *#.*//' out)"
mkdir -p bin && ln -sf /bin/true bin/python3 # what is printed does not depend on a Python being here
check_status "--dry-run of a program" 0 env "PATH=$WORK/bin:$PATH" "$RUN" --nproc-per-node 2 --dry-run x.py a
check_match "... names its command" '^command: \[".*python.*", "-u", "x.py", "a"\]$' "$(cat out)"
[ ! -e runs ] && ok "nothing was run" || not_ok "nothing was run"

# Usage.
usage() {
  check_status "$1" 2 "$RUN" "${@:3}"
  check_eq "$1: one line" "fsdprun: $2" "$(sed 's/^fsdprun plan:/fsdprun:/' err)"
}
usage "an option spelled wrong" "--max_restrats is no option; did you mean --max-restarts?" --max_restrats=3 x.py
usage "an option of other launchers" "--num-processes is no option; did you mean --nproc-per-node?" --num-processes 2 x.py
usage "... with one dash" "-n is no option; did you mean --nproc-per-node?" -np 2 x.py
usage "a key of the job file as an option" "--lr is no option; did you mean --set optimizer.lr=VALUE?" good.yaml --lr 0.1
usage "... by its path" "--train.steps is no option; did you mean --set train.steps=VALUE?" good.yaml --train.steps=9
usage "... by another program's name" "--batch-size is no option; did you mean --set train.batch=VALUE?" good.yaml --batch-size 9
usage "an option of a subcommand spelled wrong" "--memroy is no option; did you mean --memory?" plan --memroy 80G good.yaml
usage "a word that is reserved" "trace is a reserved word; a program of that name is run as ./trace or -- trace" trace

check_status "help, as a first word" 0 "$RUN" help
check_eq "... is the same page" "$("$RUN" --help)" "$(cat out)"
check_status "help plan" 0 "$RUN" help plan
check_eq "... is the page of plan" "$("$RUN" plan --help)" "$(cat out)"
usage "help with anything else" "help takes a subcommand or all, not zebra" help zebra
check_status "--version" 0 "$RUN" --version
check_eq "version is --version" "$(cat out)" "$("$RUN" version)"
check_match "... names the commit" '^commit ' "$(cat out)"

# What is run.
printf '#!/bin/sh\necho "file $*"\n' > prog; chmod +x prog
mkdir path; printf '#!/bin/sh\necho "path $*"\n' > path/onpath; chmod +x path/onpath
cp prog plan
check_eq "an executable here" "file a --set b" "$("$RUN" prog a --set b 2> err)"
check_eq "... without a word" "" "$(cat err)"
check_eq "a program with a reserved name" "file x" "$("$RUN" ./plan x)"
check_eq "... or behind dashes" "file x" "$("$RUN" -- plan x)"
cp prog inspect
check_eq "... that of a command over jobs too" "file x file x" "$("$RUN" ./inspect x) $("$RUN" -- inspect x)"
check_status "... which as the first word is the command" 66 "$RUN" inspect x
check_eq "a name on PATH" "path a" "$(PATH=$WORK/path:$PATH "$RUN" onpath a 2> err)"
check_eq "... with one line" "fsdprun: onpath is no file here: running the one on PATH" "$(cat err)"
check_eq "... behind dashes, which ask for a program, without a word" "path a " "$(PATH=$WORK/path:$PATH "$RUN" -- onpath a 2> err) $(cat err)"
check_status "a subcommand spelled wrong" 127 "$RUN" plna good.yaml
check_eq "... names the one that is meant" "fsdprun: plna is no file and not on PATH; did you mean the subcommand plan?" "$(cat err)"
check_status "... but not behind dashes" 127 "$RUN" -- plna
check_match "... where it is a program that is not there" 'cannot start plna' "$(cat err)"
check_status "a program that is not there" 127 "$RUN" --no-python ./nowhere
check_match "... with its reason, in one line" '^fsdprun: .*cannot start ./nowhere: No such file or directory$' "$(cat "$WORK/err")"
check_status "... nor on PATH" 127 "$RUN" nowhere
printf 'data\n' > text
check_status "a file that cannot be executed" 126 "$RUN" --no-python ./text
if command -v python3 > /dev/null; then
  printf 'import sys\nprint(sys.argv[1:], sys.orig_argv[1])\n' > x.py
  check_eq "standard input goes to Python" "from stdin" "$(echo 'print("from stdin")' | "$RUN" -)"
  # runs NAME WANT ARGUMENTS...: the status and all of stderr, where HOST stands for this host's name.
  runs() {
    local name=$1 want=$2; shift 2
    "$@" > out 2> err < /dev/null
    check_eq "$name" "$want" "$? $(sed 's/(host [^)]*)/(host HOST)/' err)"
  }
  refused="fsdprun: rank 0 (host HOST) could not be started, generation 0: cannot start"
  gone="No such file or directory"
  mkdir -p empty package; touch package/__main__.py
  ln -sf "$RUN" torchrun
  runs "a .py file that is not there: 127 and one line" "127 $refused nowhere.py: $gone" "$RUN" nowhere.py a
  runs "... on four ranks that may be restarted" "127 $refused ./d/nowhere.py: $gone" \
    "$RUN" --nproc-per-node 4 --max-restarts 3 ./d/nowhere.py
  runs "... with --run-path" "127 $refused nowhere.py: $gone" "$RUN" --run-path nowhere.py
  runs "... and anything by the name of torchrun" "127 $refused nowhere: $gone" ./torchrun nowhere
  runs "a directory that is no program: 126 and one line" "126 $refused empty: Is a directory" "$RUN" empty
  runs "a directory with a __main__.py" "0 " "$RUN" package
  runs "standard input by the name of torchrun" "0 " ./torchrun -
  runs "an option of Python by the name of torchrun" "0 " ./torchrun -- -c "import sys; sys.exit(sys.argv[1:] != ['a'])" a
  cp x.py rank0.py && cp x.py rank1.py
  runs "a script for each local rank" "0 " "$RUN" --nproc-per-node 2 'rank${local_rank}.py'
  runs "... of which one is not there: none is started" "127 $(echo "$refused" | sed 's/rank 0/rank 2/') rank2.py: $gone" \
    "$RUN" --nproc-per-node 3 'rank${local_rank}.py'
  printf '#!/bin/sh\necho "path $*"\n' > path/onpath.py; chmod +x path/onpath.py
  check_eq "a .py file that is on PATH alone" "path a" "$(PATH=$WORK/path:$PATH "$RUN" onpath.py a 2> err)"
  check_eq "... is run with one line" "fsdprun: onpath.py is no file here: running the one on PATH" "$(cat err)"
  cp x.py unreadable.py; chmod 200 unreadable.py
  # Root may read every file, so it asks as another user, who may not be able to reach $BIN.
  chmod 711 "$WORK"; cp "$RUN" fsdprun
  as_other() {
    if [ "$(id -u)" = 0 ]; then
      setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
    else
      "$@"
    fi
  }
  runs "a .py file that may not be read: 126 and one line" "126 $refused unreadable.py: Permission denied" \
    as_other env TMPDIR=/tmp PYTHON_EXEC=/bin/true ./fsdprun unreadable.py
else
  skip "Python programs" "no python3"
fi

check_status "an unwritable TMPDIR stops nobody" 0 env TMPDIR=/nonexistent "$RUN" prog

# Manual pages.
if command -v man > /dev/null && man --warnings -l "$SOURCE/docs/man/fsdprun.1" > /dev/null 2>&1; then
  for page in "$SOURCE"/docs/man/*.[1-8]; do
    check_eq "${page##*/} is sound roff" "" "$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$page" 2>&1 > /dev/null)"
  done
else
  skip "manual pages" "man is not installed"
fi
