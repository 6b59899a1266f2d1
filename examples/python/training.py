#!/usr/bin/env python3
"""Trains a small network with NumPy. Kill it at any moment and start it again: it goes on where it was, bit by bit.

    python3 training.py FOLDER [--steps N]

The state is everything that the next step depends on: weights, momentum, the random numbers, and the step.
"""
import argparse
import hashlib

import numpy as np

from memlith.checkpoint import Checkpoint

HIDDEN, CLASSES, BATCH = 64, 3, 128


def spirals(rng, count):
    """Points on three arms of a spiral, and the arm of each."""
    arm = rng.integers(0, CLASSES, count)
    radius = rng.random(count)
    angle = 4 * radius + arm * 2 * np.pi / CLASSES + rng.normal(0, 0.1, count)
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1), arm


def first_state():
    rng = np.random.default_rng(1)
    sizes = [(2, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)]
    weights = [rng.normal(0, np.sqrt(2 / size[0]), size) for size in sizes]
    return {"step": 0, "weights": weights, "momentum": [np.zeros_like(weight) for weight in weights], "rng": rng}


def train(state):
    """One step of stochastic gradient descent with momentum. Returns the loss."""
    points, arm = spirals(state["rng"], BATCH)
    weights = state["weights"]
    layers = [points]
    for weight in weights[:-1]:
        layers.append(np.maximum(layers[-1] @ weight, 0))
    scores = layers[-1] @ weights[-1]
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    loss = -np.log(likely[np.arange(BATCH), arm]).mean()

    likely[np.arange(BATCH), arm] -= 1
    slope = likely / BATCH
    for number in reversed(range(len(weights))):
        gradient = layers[number].T @ slope
        slope = (slope @ weights[number].T) * (layers[number] > 0)
        state["momentum"][number] *= 0.9
        state["momentum"][number] -= 0.1 * gradient
        weights[number] += state["momentum"][number]
    state["step"] += 1
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()

    with Checkpoint(options.folder) as checkpoint:
        state = checkpoint.load() or first_state()
        print(f"starting from step {state['step']}", flush=True)
        loss = float("nan")
        while state["step"] < options.steps:
            loss = train(state)
            checkpoint.save(state)  # durable now: this step, whatever happens
            print(f"step {state['step']}: loss {loss:.4f}", flush=True)
        points, arm = spirals(np.random.default_rng(7), 2000)
        for weight in state["weights"][:-1]:
            points = np.maximum(points @ weight, 0)
        right = ((points @ state["weights"][-1]).argmax(axis=1) == arm).mean()
        bits = hashlib.sha256(b"".join(weight.tobytes() for weight in state["weights"])).hexdigest()[:16]
        print(f"step {state['step']}: loss on new points: {100 * (1 - right):.1f} % wrong, weights {bits}")


if __name__ == "__main__":
    main()
