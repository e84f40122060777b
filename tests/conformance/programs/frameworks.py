"""Trains a small model by a framework's own loop, saves by its own means after every step, and loses a rank on the way.

frameworks.py FRAMEWORK DIR: FRAMEWORK is accelerate, fabric (Lightning's), lightning_run (the same of an older Lightning),
lightning (its Trainer) or transformers; with "fails" the program exits with 41. In the first life of the world rank 1 kills
itself by SIGKILL in step 4, and the world goes on after step 3.
DIR takes the checkpoints and `lines`: "step N of RANKS", written when step N is saved, and "killed".
"""

import os
import signal
import sys

framework, directory = sys.argv[1:3]
if framework == "fails":
    sys.exit(41)

import torch
import torch.distributed as dist

STEPS, FATAL, VICTIM = 6, 4, 1
rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
lines = os.path.join(directory, "lines")


def note(text):
    with open(lines, "a") as file:
        file.write(text + "\n")


def begin(step):
    if (life, rank, step) == (0, VICTIM, FATAL):
        note("killed")
        os.kill(os.getpid(), signal.SIGKILL)


def saved(step):
    """Every rank has saved the step, so a kill from here on does not lose it."""
    dist.barrier()
    if rank == 0:
        note(f"step {step} of {dist.get_world_size()}")
    dist.barrier()


def steps_done():
    """As none is added before all ranks have met, they see the same number."""
    if not os.path.exists(lines):
        return 0
    with open(lines) as file:
        return sum(line.startswith("step") for line in file)


def parts():
    """A model, its optimizer, and this rank's batch of a step."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, lambda step: torch.randn(4, 8, generator=torch.Generator().manual_seed(2 * step + rank))


def train_by_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer, batch_of = parts()
    model, optimizer = accelerator.prepare(model, optimizer)
    done = steps_done()
    if done > 0:
        accelerator.load_state(os.path.join(directory, f"step-{done}"))
    for step in range(done + 1, STEPS + 1):
        begin(step)
        accelerator.backward(model(batch_of(step)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        accelerator.save_state(os.path.join(directory, f"step-{step}"))
        saved(step)
    accelerator.end_training()


def train_by_fabric():
    from lightning_fabric import Fabric

    train_by(Fabric)


def train_by_lightning_run():
    from lightning.fabric import Fabric

    train_by(Fabric)


def train_by(Fabric):
    fabric = Fabric()  # as the command line has said, which also counts as its launch
    model, optimizer, batch_of = parts()
    model, optimizer = fabric.setup(model, optimizer)
    state = {"model": model, "optimizer": optimizer}
    done = steps_done()
    if done > 0:
        fabric.load(os.path.join(directory, f"step-{done}.ckpt"), state)
    for step in range(done + 1, STEPS + 1):
        begin(step)
        fabric.backward(model(batch_of(step)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        fabric.save(os.path.join(directory, f"step-{step}.ckpt"), state)
        saved(step)


def train_by_lightning():
    import pytorch_lightning as lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.optimizer, _ = parts()

        def training_step(self, batch, index):
            begin(self.global_step + 1)
            return self.model(batch).square().mean()

        def configure_optimizers(self):
            return self.optimizer

    class Save(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            trainer.save_checkpoint(os.path.join(directory, f"step-{trainer.global_step}.ckpt"))
            saved(trainer.global_step)

    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, default_root_dir=directory,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, callbacks=[Save()])
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    done = steps_done()
    trainer.fit(Model(), torch.utils.data.DataLoader(rows, batch_size=2),
                ckpt_path=os.path.join(directory, f"step-{done}.ckpt") if done > 0 else None)


def train_by_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            begin(state.global_step + 1)

        def on_save(self, args, state, control, **kwargs):
            saved(state.global_step)

    tokens = torch.randint(0, 64, (64, 16), generator=torch.Generator().manual_seed(1))
    trainer = Trainer(
        model=GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)),
        args=TrainingArguments(output_dir=directory, max_steps=STEPS, per_device_train_batch_size=2, use_cpu=True,
                               ddp_backend="gloo", save_strategy="steps", save_steps=1, report_to="none", disable_tqdm=True),
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        callbacks=[Watch()],
    )
    trainer.train(resume_from_checkpoint=steps_done() > 0)


torch.set_num_threads(1)
{"accelerate": train_by_accelerate, "fabric": train_by_fabric, "lightning_run": train_by_lightning_run,
 "lightning": train_by_lightning, "transformers": train_by_transformers}[framework]()
if dist.is_initialized():
    dist.destroy_process_group()
