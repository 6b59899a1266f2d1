"""Durable steps: a program that goes on where it was killed, each effect once.

    store = memlith.open("state")
    run = memlith.steps.run(store, "order-4711")      # found again after a crash, or begun

    @run.step                                          # its result and its changes of the store: one commit, once
    def reserve(stock, item):
        stock[item] -= 1
        return item

    @run.effect(key=lambda r: r.key)                   # the world outside: intent first, then the call, then the result
    def charge(card, cents, key):
        return payments.charge(card, cents, idempotency_key=key)

docs/steps.md is the guide.
"""

from ._engine import (
    Cancelled,
    Changed,
    Effect,
    Failed,
    RunInfo,
    Unknown,
    cancel,
    happened,
    info,
    prune,
    result,
    retry,
    runs,
    signal,
    submit,
    unknown,
)
from ._outbox import Message, Outbox
from ._run import Run, run
from ._worker import Worker, worker, workflow

__all__ = [
    "Cancelled", "Changed", "Effect", "Failed", "Message", "Outbox", "Run", "RunInfo", "Unknown", "Worker", "cancel",
    "happened", "info", "prune", "result", "retry", "run", "runs", "signal", "submit", "unknown", "worker", "workflow",
]
