"""The steps of a driver and of `lineage new`, as docs/specification/output-batch.md and docs/specification/incarnation.md have them. Each is one transaction, or one look."""

from __future__ import annotations

from tests.model import batch, new_life, starting, writing
from tests.model.setting import Setting, Steps
from tests.model.state import Process, State

STEPS = {
    "start": starting.start, "bump": starting.bump, "adopt": starting.adopt, "begin batch": batch.begin,
    "unit": writing.unit, "delta": writing.delta, batch.END: batch.end, "checkpoint": batch.checkpoint,
    "look": new_life.look, "take": new_life.take, "new life": new_life.new_life,
}  # fmt: skip
KINDS = {"run": "driver", "new": "lineage new"}


def steps(at: Setting, state: State, process: Process) -> Steps:
    """Each next step of a process: what it does, and what is then. None where it waits for a lock."""
    for told, after in STEPS[process.at](at, state, process):
        yield f"{KINDS[process.kind]} {process.number}: {told}", after
