# The scripts a new user runs: the quickstart, small, twice; the text; a machine without the network.
# Shares: the build folder, in which it runs make
# Long
. tests/support/shell/harness.sh

# no network
mkdir "$WORK/fake"
for name in apt-get sudo; do printf '#!/bin/sh\nexit 100\n' > "$WORK/fake/$name"; done
printf '#!/bin/sh\nexit 1\n' > "$WORK/fake/dpkg-query"
chmod +x "$WORK/fake"/*
check_status "without the network the quickstart stops" 1 env PATH="$WORK/fake:$PATH" scripts/quickstart.sh
check_match "and says what is missing" 'could not install:.*libdnnl-dev.*bible-kjv' "$(cat "$WORK/err")"

# --- progress: a line for every tenth of the files, however they are compiled, and nothing of what make
# prints besides
commands() { for i in $(seq 25); do echo "cc -c a$i.c -o a$i.o"; echo "mkdir -p x"; done; }
check_eq "the build says how far it is" "10 20 30 40 50 60 70 80 90 100" \
  "$(commands | awk -v total=25 -f scripts/build-progress.awk | sed 's/.*(\([0-9]*\) %)$/\1/' | xargs)"
check_eq "what there is no need to build says nothing" "" "$(awk -v total=0 -f scripts/build-progress.awk < /dev/null)"

# the real thing
if ! command -v bible > /dev/null; then
  skip "the quickstart" "bible-kjv is not installed"
  exit
fi
quickstart() { env FSDP_QUICKSTART_RUNS="$WORK/runs" LC_ALL=C scripts/quickstart.sh --set train.steps=8 \
  --set optimizer.warmup_steps=1 --set model.layers=1 --set model.dim=32 --set run.log_every=1 < /dev/null; }
check_status "the quickstart, small" 0 quickstart
for words in 'The loss fell from 5\.[0-9]+ to [45]\.[0-9]+ nats' 'checkpoint: .*/step-00000008 ' '^In the beginning' \
  '^ +loss \+---' 'step 8/8 +loss' 'model\.dim=256' '^[0-9]+ of [0-9]+ words of it occur' 'no sense' \
  '^ *export PATH=.*/build/bin' '^ *fsdprun --nproc-per-node 4 '; do
  check_match "it shows: $words" "$words" "$(tr -d '\000' < "$WORK/out")"
done
metrics=$WORK/runs/quickstart/metrics.jsonl
awk 'END { for (i = 0; i < 5000; i++) print }' "$metrics" > "$WORK/many" && cat "$WORK/many" >> "$metrics"
check_status "once more, after a run that logged more than a pipe holds" 0 quickstart
check_match "it is complete" 'complete' "$(cat "$WORK/out" "$WORK/err")"
check_match "and shows the sample again" '^In the beginning' "$(tr -d '\000' < "$WORK/out")"
check_eq "the text is the whole Bible" "$(bible gen1:1-rev22:21 < /dev/null | cksum)" "$(cksum < data/bible.txt)"

check_status "the wider run it proposes starts" 0 "$BIN/fsdprun" --nproc-per-node 4 configs/quickstart.yaml \
  --set "run.dir=$WORK/runs" --set run.name=wider --set train.steps=50 --set model.dim=256 --set train.steps=2 --set optimizer.warmup_steps=1

# --- words. The whole quickstart is trained by the nightly tests alone; an eighth of its steps gets the loss
# to where a job with a third of the learning rate is after twice as many.
printf 'Ab cd\nab zz\n' > "$WORK/known"; printf 'AB, zz; xx cd cu' > "$WORK/sample"
check_eq "words are counted whatever their capitals, the last one not" "3 of 4" "$(awk -f scripts/count-words.awk "$WORK/known" "$WORK/sample")"
steps=300 most=2.05
if [ -n "${FSDP_NIGHTLY:-}" ]; then steps=2400 most=1.4; fi
check_status "$steps steps of the quickstart's job" 0 "$BIN/fsdprun" --quiet configs/quickstart.yaml --set "run.dir=$WORK/runs" \
  --set run.name=words --set train.steps=$steps --set checkpoint.every=$steps
losses=$(sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$WORK/runs/words/metrics.jsonl" | tail -n 3 | xargs)
check "its last losses ($losses) are below $most" awk "BEGIN { n = split(\"$losses\", l, \" \"); exit !(n == 3 && l[1] + l[2] + l[3] < 3 * $most) }"
if [ -n "${FSDP_NIGHTLY:-}" ]; then
  "$BIN/fsdp-train" --sample "$WORK/runs/words" --prompt "In the beginning" --tokens 1500 --temperature 0.7 > "$WORK/sample"
  counted=$(awk -f scripts/count-words.awk data/bible.txt "$WORK/sample")
  check "of 1500 bytes of its text 85 of 100 words are words of the Bible ($counted)" \
    test $((100 * ${counted% of *})) -ge $((85 * ${counted#* of }))
fi

# the text
mkdir -p "$WORK/clone/scripts"
cp scripts/prepare-data.sh scripts/packages.sh "$WORK/clone/scripts"
check_status "the text is written" 0 "$WORK/clone/scripts/prepare-data.sh"
head -c 5000000 data/bible.txt | head -c 1000000 > "$WORK/clone/data/bible.txt"
check_status "a text cut short is written again" 0 "$WORK/clone/scripts/prepare-data.sh"
check "whole" cmp data/bible.txt "$WORK/clone/data/bible.txt"
check_eq "nothing else is left" bible.txt "$(ls -A "$WORK/clone/data")"
