#!/usr/bin/env bash
# From a fresh clone to a trained model: installs packages (apt; sudo when not root), builds, prepares real text,
# trains on two ranks, and shows what came of it. Run again it goes on where it was, and shows it again.
# Arguments are handed to fsdprun: ./scripts/quickstart.sh --set train.steps=100
# FSDP_QUICKSTART_RUNS is where the run is kept; default: runs.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
job=configs/quickstart.yaml
runs=${FSDP_QUICKSTART_RUNS:-runs}
run=$runs/quickstart

say() { printf '\n== %s\n' "$*"; }
figure() { sed -n "s/.*\"$1\": *\\([-+.0-9e]*\\).*/\\1/p"; } # of each line of metrics on standard input

say "packages"
install_packages $packages_build $packages_run $packages_data || exit 1
echo "all there"

say "build"
make -s -j"$(nproc)"
build/bin/fsdprun --version | head -n 1

say "text"
scripts/prepare-data.sh

say "train: fsdprun --nproc-per-node 2 $job $*"
began=$(date +%s)
build/bin/fsdprun --nproc-per-node 2 "$job" --set "run.dir=$runs" "$@"
echo "took $(($(date +%s) - began)) s"

say "what came of it"
first=$(figure loss < "$run/metrics.jsonl" | head -n 1)
last=$(figure loss < "$run/metrics.jsonl" | tail -n 1)
checkpoint=$(printf '%s\n' "$run"/checkpoints/step-* | tail -n 1)
[ -d "$checkpoint" ] || { echo "no checkpoint in $run/checkpoints" >&2; exit 1; }
case $(locale charmap 2> /dev/null) in UTF-8) ascii=0 ;; *) ascii=1 ;; esac
awk -v ascii=$ascii -f scripts/plot-loss.awk "$run/metrics.jsonl"
printf '\nThe loss fell from %.3f to %.3f nats a byte. The checkpoint: %s (%s)\n' "$first" "$last" "$checkpoint" \
  "$(du -sh "$checkpoint" | cut -f 1)"
printf '\nIts text, after the prompt "In the beginning":\n\n'
build/bin/fsdp-train --sample "$checkpoint" --prompt "In the beginning" --tokens 320 --temperature 0.7

say "to try next"
cat << EOF
  build/bin/fsdprun --nproc-per-node 2 $job --set train.steps=1000        # goes on from the checkpoint
  build/bin/fsdprun --nproc-per-node 4 $job --set run.name=wider --set train.steps=50 --set model.dim=256
  build/bin/fsdprun --nproc-per-node 2 -- ./any-program its args          # any worker at all
  build/bin/fsdp-train --sample $run --prompt "And the LORD said" --tokens 500
  ./scripts/test.sh                                                       # the tests
  less docs/getting-started.md
EOF
