"""A finding of `onlyonce doctor`: what is stuck, what that means for the data, and how it is safely repaired. Pure.

`onlyonce.model.operate.diagnosis` and `onlyonce.model.operate.waiting` make findings. `onlyonce.operate.doctor` carries
out their repairs. Errors: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

By = Literal[
    "person",
    "run",
    "backfill",
    "release",
    "lineage",
    "migrate",
    "filter",
    "ids",
    "files",
    "drop",
    "finalize",
    "deliver",
    "arrivals",
]
FIX = "onlyonce doctor --fix"


@dataclass(frozen=True)
class Repair:
    """The exact command, and what does it when `--fix` is given: an entry point with arguments, or a person.

    for_good   it can't be taken back: it takes something away, if only a checkpoint's life, or sends rows outside. Done
               with `--yes` alone
    """

    command: str
    by: By = "person"
    arguments: tuple[Any, ...] = ()
    for_good: bool = False


@dataclass(frozen=True)
class Finding:
    """One thing that is stuck: which kind, where, what happened, what it means for the data, and the repair."""

    kind: str
    where: str
    what: str
    data: str
    repair: Repair

    @property
    def key(self) -> tuple[str, str]:
        """What makes two looks see the same thing."""
        return self.kind, self.where

    def row(self) -> dict[str, Any]:
        """As plain values, for a table and for JSON."""
        by_fix = "no" if self.repair.by == "person" else "with --yes" if self.repair.for_good else "yes"
        return {
            "finding": self.kind, "where": self.where, "what": self.what, "data": self.data,
            "repair": self.repair.command, "fix": by_fix,
        }  # fmt: skip


def new_life(target: str) -> Repair:
    """The way out for a lineage that can't go on. It gives its checkpoint up, so somebody must say yes."""
    return Repair(f"onlyonce lineage new {target} --yes", "lineage", (target,), for_good=True)


def views_missing(missing: Iterable[str]) -> Finding:
    """Return the finding of a database that lacks tables, or has the views of another version."""
    return Finding(
        "missing views", "PostgreSQL", f"the database lacks: {', '.join(missing)}",
        "none; the next run makes them, and until then this can't look further", Repair(FIX, "migrate"),
    )  # fmt: skip


def half_dropped(instance: str, query: str | None, places: list[str]) -> Finding:
    """A drop was killed: the log has forgotten what is still there."""
    arguments = (instance, *(("--output", query) if query else ()), "--yes")
    command = f"onlyonce drop {' '.join(arguments)}"
    what = f"a drop has not ended; still to be removed: {', '.join(places)}"
    return Finding(
        "begun drop", instance, what, "none; the log knows it no more", Repair(command, "drop", arguments, True)
    )


def wider_permissions(where: str, found: int, allowed: int) -> Finding:
    """Other users of the machine may enter a folder of the embedded home."""
    return Finding(
        "permissions", where, f"its permissions are {found:o}: other users of this machine may enter or read it",
        "none is lost; they may read records, logs and state", Repair(f"chmod {allowed:o} {where}"),
    )  # fmt: skip


def shared_account(where: str, account: str) -> Finding:
    """The embedded server's data belongs to an account that other services have too."""
    command = f"onlyonce down && useradd --system postgres && chown --recursive postgres: {where} && onlyonce up"
    return Finding(
        "permissions", where, f"it belongs to the account {account}, which other services of this machine may have too",
        "none is lost; such a service may read and change the database's files", Repair(command),
    )  # fmt: skip


def other_version(where: str, what: str) -> Finding:
    """An installed part does not fit another one."""
    return Finding("versions", where, what, "runs fail, or go by what nobody has tested", Repair("make env"))
