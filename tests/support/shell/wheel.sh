# Sourced after harness.sh by the tests of what is installed.
# small_job: what makes the quickstart's job end in seconds, for the text that comes with the programs
small_job="--set train.steps=2 --set model.layers=1 --set model.dim=64 --set model.seq=16 --set checkpoint.every=2
 --set optimizer.warmup_steps=0"
