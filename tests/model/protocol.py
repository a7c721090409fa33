"""The steps of a driver and of `onlyonce reset`, as docs/specification/output-batch.md and docs/specification/incarnation.md have them. Each is one transaction, or one look."""

from __future__ import annotations

from tests.model import batch, new_incarnation, starting, writing
from tests.model.setting import Setting, Steps
from tests.model.state import Process, State

STEPS = {
    "start": starting.start, "bump": starting.bump, "adopt": starting.adopt, "begin batch": batch.begin,
    "unit": writing.unit, "delta": writing.delta, batch.END: batch.end, "checkpoint": batch.checkpoint,
    "look": new_incarnation.look, "take": new_incarnation.take, "new incarnation": new_incarnation.new_incarnation,
}  # fmt: skip
KINDS = {"run": "driver", "new": "reset"}


def steps(at: Setting, state: State, process: Process) -> Steps:
    """Each next step of a process: what it does, and what is then. None where it waits for a lock."""
    for told, after in STEPS[process.at](at, state, process):
        yield f"{KINDS[process.kind]} {process.number}: {told}", after
