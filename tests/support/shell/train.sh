# Sourced after harness.sh by the suites that train: a job small enough for a second, and what to compare of
# two runs.

# tiny_job FILE: writes a job on the excerpt that ships with the parity tests. Rows that few world sizes
# divide.
tiny_job() {
  cat > "$1" << EOF
run:        {name: tiny, dir: $WORK/runs, log_every: 1}
launch:     {nproc_per_node: 2, max_restarts: 3}
data:       {path: $SOURCE/tests/parity/excerpt.txt}
model:      {layers: 2, dim: 14, heads: 2, vocab: 256, seq: 16}
train:      {steps: 20, global_batch: 12}
optimizer:  {lr: 1.0e-2}
checkpoint: {every: 5}
EOF
}

# run_job LOG ARGS...: fsdprun with its output in a file; its exit status.
run_job() { local log=$1; shift; "$BIN/fsdprun" "$@" > "$log" 2>&1 < /dev/null; }

# base_instructions DIRECTORY RANK: fills it with an fsdprun whose rank RANK computes with the base instruction
# set: BIN=DIRECTORY for run_job.
base_instructions() {
  mkdir "$1" && cp "$BIN/fsdprun" "$1/" &&
    printf '#!/bin/sh\n[ "$RANK" != %d ] || export FSDP_ISA=base\nexec "%s" "$@"\n' "$2" "$BIN/fsdp-train" > "$1/fsdp-train" &&
    chmod +x "$1/fsdp-train"
}

# number KEY: of each line of JSON on standard input
number() { sed -n "s/.*\"$1\": *\\(-\\{0,1\\}[0-9][-+.0-9eE]*\\).*/\\1/p"; }

# figures RUN: "step loss grad_norm" of every logged step, the same step in two generations once if the text
# is equal.
figures() {
  sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl" | sort -n | uniq
}

# close_figures A B FIRST LIMIT: losses and norms from step FIRST on agree to LIMIT, relative; prints the
# worst.
close_figures() {
  awk -v first="$3" -v limit="$4" '
    function off(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
    NR == FNR { loss[$1] = $2; norm[$1] = $3; next }
    $1 >= first { n++; if (!($1 in loss)) { print "step " $1 " is missing"; bad = 1; next }
      d = off(loss[$1], $2); if (d > worst) worst = d; if (d > limit) { print "step " $1 ": " loss[$1] " and " $2; bad = 1 } }
    END { print n + 0 " steps, worst " worst + 0; exit bad || n == 0 }' <(figures "$1") <(figures "$2")
}

# payloads STEP_DIRECTORY: a checksum of the tensors alone of each shard file, without headers.
payloads() {
  local file header
  for file in "$1"/shard-*.safetensors; do
    [ -e "$file" ] || { echo "no shards in $1"; return 1; }
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    echo "$(basename "$file") $(tail -c +$((header + 9)) "$file" | cksum)"
  done
}

# pid_of RUN GENERATION RANK: of the worker, from events.jsonl; empty while it has not been spawned.
pid_of() {
  sed -n "/\"event\": *\"spawn\"/{/\"generation\": *$2[,}]/{/\"rank\": *$3[,}]/s/.*\"pid\": *\([0-9]*\).*/\1/p}}" "$1/events.jsonl" | tail -n 1
}

# logged_lines RUN GENERATION: how many steps this generation has logged.
logged_lines() { grep -c "\"generation\": *$2[,}]" "$1/metrics.jsonl" 2> /dev/null; }
# await_logged RUN GENERATION N PID: waits until the generation has logged N steps; false if the process, which
# runs the job, has ended before.
await_logged() { wait_until 120 logged_or_over "$@" && has_logged "$@"; }
logged_or_over() { has_logged "$@" || ! kill -0 "$4" 2> /dev/null; }
has_logged() { [ "$(logged_lines "$1" "$2")" -ge "$3" ] 2> /dev/null; }
