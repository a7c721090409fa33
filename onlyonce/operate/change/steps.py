"""The steps that a changed declaration needs: new lives, a run, backfills. Pure.

The log tells which windows need a backfill: those that readers see and that an older declaration has made. So the
plan of a half finished change has what is left, and the plan of a finished one is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from onlyonce.commitlog.declared import Made
from onlyonce.declare.pipeline import Output
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.operate.consequences import Need
from onlyonce.model.operate.plan import Change, Parts, changes
from onlyonce.model.stored_names import FIRST_WINDOW
from onlyonce.model.windows import Fixed, Micros, first_start


@dataclass(frozen=True)
class Step:
    """One command. `start` is what a new life begins with beside what the log says."""

    kind: Literal["lineage", "run", "backfill"]
    command: str
    arguments: tuple[str, ...]
    start: dict[str, Any] = field(default_factory=dict)


def new_life(
    instance: str, root: Output, found: Iterable[Change], last_start: Micros | None, last_end: Micros | None
) -> Step | None:
    """The new life that the changes of an output ask for, if any; where its newest closed window starts, and its last
    written one ends."""
    asking = [change for change in found if change.need in (Need.LINEAGE, Need.BOTH)]
    if not asking:
        return None
    changed = {change.part.split(" of ")[0] for change in asking}
    start: dict[str, Any] = {}
    if root.stateful:
        start = {}  # it is always from the start: `onlyonce.run.from_start`
    elif root.window is None:
        start = {"version": 0}  # its state sums up all that ever came
    elif "window" in changed and last_end is not None:
        start = {FIRST_WINDOW: first_start(root.window, last_end)}
    elif "lateness" in changed and last_start is not None:
        # What waits longer now would come in time for windows that are written.
        start = {FIRST_WINDOW: last_start + 1}
    target = f"{instance}/{root.name}"
    by_hand = f"onlyonce lineage new {target} --yes"
    command = f"onlyonce plan {instance} --apply --yes   (a new life of {target})" if start else by_hand
    return Step("lineage", command, (target,), start)


def run_of(instance: str) -> Step:
    """The run that gives new lives their first batch."""
    return Step("run", f"onlyonce run {instance}", (instance,))


def backfill(
    instance: str,
    root: Output,
    now: str,
    parts: Parts,
    made: Sequence[Made],
    first_window: Micros | None,
    kept_from: Micros | None = None,
) -> Step | None:
    """The backfill of the windows that an older declaration has made, if there are any.

    `first_window` is where those of the new declaration begin, if its windows differ from the old. Windows that start
    before `kept_from` stay as they are: not all of their records are there.
    """
    old = [m for m in made if m.hash != now and m.parts is not None and outdated(root.name, m.parts, parts)]
    if not old or root.window is None:
        return None
    # A window belongs to a backfill by its start; those of fixed size may be told by their ends, which reads better.
    past_last = max(m.upto if isinstance(root.window, Fixed) else m.last + timedelta(microseconds=1) for m in old)
    stop = max(to_micros(past_last) or 0, first_window or 0)
    start = max(to_micros(min(m.first for m in old)) or 0, kept_from or 0)
    if start >= stop:
        return None
    times = ("--from", _text(start), "--to", _text(stop))
    arguments = (instance, "--output", root.name, *times)
    return Step("backfill", f"onlyonce backfill {' '.join(arguments)}", arguments)


def outdated(query: str, made_under: Parts, now: Parts) -> bool:
    """Whether windows that were made under one declaration differ from those that another would make."""
    return any(change.need in (Need.BACKFILL, Need.BOTH) for change in changes(query, made_under, now))


def _text(time: Micros) -> str:
    at = to_time(time)
    assert at is not None
    return at.isoformat().replace("+00:00", "Z")
