#!/usr/bin/env bash
# From a fresh clone to a trained model: installs packages (apt; sudo when not root), builds, prepares real
# text, trains on two ranks, and shows what came of it. Run again it goes on where it was, and shows it again.
# Arguments are handed to fsdprun: ./scripts/quickstart.sh --set train.steps=100
# FSDP_QUICKSTART_RUNS is where the run is kept; default: runs.
set -euo pipefail
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
files=$(make -n all | grep -v 'core/version\.o' | grep -c -e ' -c .* -o ' || true)
[ "$files" -eq 0 ] || echo "$files files to compile, on $(nproc) CPUs"
make -j"$(nproc)" | awk -v total="$files" -f scripts/build-progress.awk
export PATH="$PWD/build/bin:$PATH"
fsdprun --version | sed -n 1p

say "text"
scripts/prepare-data.sh

say "train: fsdprun --nproc-per-node 2 $job $*"
began=$(date +%s)
fsdprun --nproc-per-node 2 "$job" --set "run.dir=$runs" "$@"
echo "took $(($(date +%s) - began)) s"

say "what came of it"
# sed and not head: head ends early, and the writer of a long file would die of SIGPIPE.
first=$(figure loss < "$run/metrics.jsonl" | sed -n 1p)
last=$(figure loss < "$run/metrics.jsonl" | tail -n 1)
checkpoint=$(printf '%s\n' "$run"/checkpoints/step-* | tail -n 1)
[ -d "$checkpoint" ] || { echo "no checkpoint in $run/checkpoints" >&2; exit 1; }
fsdprun plot "$run"
printf '\nThe loss fell from %.3f to %.3f nats a byte. The checkpoint: %s (%s)\n' "$first" "$last" "$checkpoint" \
  "$(du -sh "$checkpoint" | cut -f 1)"
printf '\nIts text, after the prompt "In the beginning":\n\n'
sample=$(mktemp)
trap 'rm -f "$sample"' EXIT
fsdp-train --sample "$checkpoint" --prompt "In the beginning" --tokens 320 --temperature 0.7 | tee "$sample"
printf '\n%s words of it occur in the Bible. A model this small learns words; there is no sense in what it writes.\n' \
  "$(awk -f scripts/count-words.awk data/bible.txt "$sample")"

say "to try next"
cat << EOF
  export PATH="$PWD/build/bin:\$PATH"                                   # fsdprun by its name, in this shell
  fsdprun --nproc-per-node 2 $job --set train.steps=4000     # goes on from the checkpoint
  fsdprun --nproc-per-node 4 $job --set run.name=wider --set train.steps=50 --set model.dim=256
  fsdprun --nproc-per-node 2 -- ./any-program its args          # any worker at all
  fsdp-train --sample $run --prompt "And the LORD said" --tokens 500
  ./scripts/test.sh                                             # the tests
  less docs/getting-started.md
EOF
