#!/usr/bin/env python3
"""Write reference/<shape>.bf16.txt: how far PyTorch's own bfloat16 training is from its fp64 run.

    python tests/parity/reference_bf16.py [--out DIR] [--shape NAME]

FSDP2 over gloo with MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32 or bfloat16) and float32 logits, on
the cases of reference.py; the fp64 gradients are those of reference.py too. A line per dtype of the reduction, world
and parameter: the error of the raw gradient of step 1, relative to its norm, of which ours may be 1.25 times as large plus
1e-3. And the loss of every step: on these small models at a high rate bfloat16 drifts farther than 1e-3 from fp64, and
PyTorch and we drift alike.
"""

import argparse
import pathlib

import torch

import reference

WORLDS = (1, 2, 4)
SHAPES = ("plain", "short", "long", "gpt2")


def errors(case, exact, reduce_name):
    for world in WORLDS:
        losses, norms, gradients = reference.fsdp2(case, world, param_dtype=torch.bfloat16,
                                                   reduce_dtype=getattr(torch, reduce_name))
        yield f"# {reduce_name}, W={world}: gradient norms {reference.relative(norms, exact[1]):.1e}"
        yield f"error {reduce_name} {world} losses {reference.relative(losses, exact[0]):.3e}"
        for step, loss in enumerate(losses, 1):
            yield f"loss {reduce_name} {world} {step} {loss:.9g}"
        for name, want in exact[2].items():
            yield f"error {reduce_name} {world} {name} {float((gradients[name] - want).norm() / want.norm()):.3e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=reference.HERE / "reference")
    parser.add_argument("--shape", choices=SHAPES, action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for shape in options.shape or SHAPES:
        case = {**reference.COMMON, **reference.SHAPES[shape], **reference.OPTIMIZERS["adamw"]}
        case["optimizer.lr"] = reference.RATES.get((shape, "adamw"), case["optimizer.lr"])
        exact = reference.train(case, reference.build(case, torch.float64))
        with open(options.out / f"{shape}.bf16.txt", "w") as file:
            head = [line.replace("reference.py", "reference_bf16.py") for line in reference.HEAD]
            print(*head, *errors(case, exact, "float32"), *errors(case, exact, "bfloat16"), sep="\n", file=file)


if __name__ == "__main__":
    main()
