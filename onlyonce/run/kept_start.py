"""A life of an output that begins with what retention has left of `events`, because a person says that this will do.
docs/specification/removal.md.

An output that is new, one that keeps totals, and sessions read `events` from the beginning. Where that is removed they
are refused, until `onlyonce lineage new --from-kept` says so. Windows that start before what is kept are none of such a
life's. Totals and the first sessions are of the kept records alone.

Who calls it: `onlyonce.run.lineage`. Errors: Refused where nothing is removed, and for what is not declared.
"""

from __future__ import annotations

from onlyonce.commitlog.new_lives import NewLives, Start
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Output, unknown
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.operate import retaining
from onlyonce.model.report import Report
from onlyonce.model.stored_names import FIRST_WINDOW
from onlyonce.model.windows import Micros


def of(instance: str, query: str, kept: Micros | None, begins: Start | None) -> Start:
    """What a new life begins with beside what the log says; nothing more where it would begin later anyway."""
    root = _root(instance, query)
    if kept is None:
        raise Refused(
            f"{instance}: no record of `events` is removed", data="nothing was changed", hint="leave --from-kept out"
        )
    if (begins or {}).get("version", 0) > 0:
        return {}
    return retaining.with_what_is_kept(root.window, kept, (begins or {}).get(FIRST_WINDOW))


def first(database: Database, target: str, *, yes: bool) -> Report | None:
    """Register the first life of a new output; None where it has a life."""
    instance, _, query = target.strip("/").partition("/")
    start = NewLives(database).first(instance, query, lambda kept: of(instance, query, kept, None), register=yes)
    if start is None:
        return None
    facts = {"instance": instance, "query": query, "starts from": retaining.said(start[stored_names.KEPT_FROM])}
    title = f"{target}: its first life" if yes else f"{target}: what its first life would be (add --yes)"
    return Report(title, "lineage new" if yes else "dry run", facts)


def _root(instance: str, query: str) -> Output:
    pipeline = declarations.one(instance)
    roots = {root.name: root for root in pipeline.roots()}
    if query not in roots:
        raise unknown("output that reads `events`", query, sorted(roots))
    return roots[query]
