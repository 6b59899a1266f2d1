#!/usr/bin/env python3
"""Trains a small network with PyTorch; killed and started again, it ends with the same weights, bit by bit.

    torch_training.py FOLDER [STEPS]

The state is a model's and an optimiser's `state_dict` and the generator. A save writes the bytes that changed.
"""
import sys

import torch

from memlith.checkpoint import Checkpoint


def main(folder: str, steps: int = 60) -> None:
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    with Checkpoint(folder) as checkpoint:
        if state := checkpoint.load():
            model.load_state_dict(state["model"])
            optimiser.load_state_dict(state["optimiser"])
            torch.set_rng_state(state["generator"])
            step = state["step"]
        while step < steps:
            inputs = torch.randn(64, 8)
            loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
            checkpoint.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(),
                             "generator": torch.get_rng_state(), "step": step})
            print(step, f"{loss.item():.4f}", flush=True)
    print("weights", torch.cat([each.flatten() for each in model.parameters()]).double().sum().item().hex())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
