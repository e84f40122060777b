"""fsdprun: a launcher with torchrun's command line. fsdprun.wrap starts it in PyTorch's place."""
