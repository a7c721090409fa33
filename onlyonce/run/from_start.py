"""New lives of outputs whose rows depend on the state of their stream: a new stream would not have it.

A processor's output is computed from the start: the new life reads `events` from the beginning, and its rows take the
place of all that were there (`onlyonce.outputs.stateful.anew`). Of a join it is refused.

Who calls it: `onlyonce.run.lineage`. Errors: Refused.
"""

from __future__ import annotations

from typing import Any

from onlyonce.declare import loading as declarations
from onlyonce.declare.outputs.output import Output
from onlyonce.declare.outputs.stateful import ANEW, check_anew
from onlyonce.model.errors import Refused

Start = dict[str, Any] | None


def asked(instance: str, query: str, start: Start) -> Start:
    """What a new life begins with beside what the log says; `start` is what a changed declaration asks for."""
    known = declarations.load().get(instance.partition("@")[0])
    root = next((output for output in known.roots() if output.name == query), None) if known else None
    if root and root.join:
        raise Refused(
            f"{instance}/{query} is a join: which of its rows are written is in the state of its stream, and a new "
            "life would not have that",
            data="nothing was changed; the rows that are written stay",
            hint="put its checkpoint back from a backup; or declare the join under another name, with a target of "
            "its own: it reads `events` from "
            "the start",
        )
    if root is None or root.stateful is None:
        return start
    check_anew(f"{instance}/{query}", root)
    return (start or {}) | {"version": 0, ANEW: True}


def is_possible(root: Output) -> bool:
    """Return whether a new life of an output writes no row twice."""
    try:
        if root.stateful:
            check_anew(root.name, root)
    except Refused:
        return False
    return root.join is None
