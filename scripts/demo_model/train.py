"""Trains the demo model on a CPU: Muon for the matrices, AdamW for the rest, bf16 autocast.

    python train.py --data DIR --steps N [--minutes M] [--threads 2] [--seed 1]

The learning rate warms up, stays, and falls to zero over the last part of N steps (or of M
minutes, whichever ends first). Keeps a running average of the weights, which is what gets
exported. Writes DIR/checkpoint.pt now and then, DIR/weights.pt at the end, DIR/train.json always.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch

from network import SHAPE, Network, rope_tables

PAD = 65535
SHORT, LONG = 512, 4096  # the lengths of a row; a batch is --rows short ones or one long one
LONG_EVERY = 80
WARMUP = 50
DECAY_FROM = 0.55


class Rows:
    """An endless, seeded supply of batches from one file of rows."""

    def __init__(self, path, count, seed):
        self.rows = np.load(path, mmap_mode="r")
        self.count = count
        self.random = np.random.default_rng(seed)
        self.order = []

    def next(self):
        """(inputs, labels), each (rows, length); a label of -100 is nothing to learn."""
        if len(self.order) < self.count:
            self.order = list(self.random.permutation(len(self.rows)))
        picked = [self.rows[self.order.pop()] for _ in range(self.count)]
        ids = torch.from_numpy(np.stack(picked).astype(np.int64))
        inputs, labels = ids[:, :-1].clone(), ids[:, 1:].clone()
        inputs[inputs == PAD] = 0
        labels[labels == PAD] = -100
        return inputs, labels


def optimizers(network):
    """Muon for the layers' matrices; AdamW for the embedding and the norms."""
    matrices = [p for n, p in network.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in network.named_parameters() if p.dim() != 2 or "embed" in n]
    muon = torch.optim.Muon(
        matrices, lr=4e-3, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["top_lr"] = group["lr"]
    return [muon, adam]


def rate(step, progress):
    """The share of the top learning rate at a step, progress being the share of the run done."""
    warm = min(1.0, (step + 1) / WARMUP)
    fall = (1.0 - progress) / (1.0 - DECAY_FROM)
    return warm * max(0.0, min(1.0, fall))


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    network = Network(SHAPE)
    if args.init:
        network.load_state_dict(torch.load(args.init, weights_only=True))
    compiled = torch.compile(network, dynamic=False)
    average = {name: p.detach().clone() for name, p in network.named_parameters()}
    tables = {length: rope_tables(length, SHAPE) for length in (SHORT, LONG)}
    supply = {
        length: Rows(args.data / f"rows_{length}.npy", count, args.seed)
        for length, count in ((SHORT, args.rows), (LONG, 1))
    }
    steps_of = optimizers(network)
    start, log, step, tokens, progress = time.time(), [], 0, 0, 0.0
    while progress < 1.0:
        minutes = (time.time() - start) / 60
        progress = max(step / args.steps, minutes / args.minutes if args.minutes else 0.0)
        for optimizer in steps_of:
            for group in optimizer.param_groups:
                group["lr"] = group["top_lr"] * rate(step, progress)
        length = LONG if step % LONG_EVERY == LONG_EVERY - 1 else SHORT
        inputs, labels = supply[length].next()
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(inputs, labels, *tables[length])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in steps_of:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        keep = min(0.995, step / (step + 10))
        with torch.no_grad():
            for name, p in network.named_parameters():
                average[name].lerp_(p, 1.0 - keep)
        step += 1
        tokens += inputs.numel()
        if step % 20 == 0:
            log.append([step, round(loss.item(), 4), round(minutes, 2)])
            print(
                f"step {step} loss {loss.item():.4f} minutes {minutes:.1f} "
                f"tokens/s {tokens / (minutes * 60 + 1e-9):.0f}",
                flush=True,
            )
        if step % 100 == 0:
            torch.save(average, args.data / "checkpoint.pt")
    torch.save(average, args.data / "weights.pt")
    summary = {"steps": step, "tokens": tokens, "minutes": round(minutes, 1), "log": log}
    (args.data / "train.json").write_text(json.dumps(summary))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--rows", type=int, default=4, help="rows of 512 in a batch")
    parser.add_argument("--init", help="begin with the weights of this file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
