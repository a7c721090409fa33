"""The lives of an output, as data: what it is, where it writes, what befalls it, and where it is struck meanwhile.

Pure.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from docs.generate import specification

KINDS = ("windowed", "early", "sliding", "session", "raw", "plain", "totals", "made")
"""raw: each record with its window, no state. plain: each record, no window. made: from the closed windows of another
output."""
SINKS = (
    "delta append", "delta upsert", "delta latest", "postgres append", "postgres upsert", "postgres increment",
    "other append", "other upsert", "other increment", "files", "outbox",
)  # fmt: skip
"""latest: an upsert whose keys have no window. other: a database that is not the platform's."""
LIVES = ("none", "reset", "receive new", "changed", "planned", "backfill", "recompute", "reprocess")
"""changed: a declaration that needs nothing. planned: another function, by `onlyonce plan --yes`."""
STEPS = ("run", "life", "end")
"""Where a case is struck: in the run before its life, which is then left as it is; in what befalls it; in the last run.
Every second run is left whole, so that lives befall what is half done and what is done."""

STREAM = (
    "output-before-begin", "output-after-begin", "output-consumed", "output-before-end", "output-after-end",
    "receive-after-begin", "receive-after-delta", "receive-after-end", "marker-after-begin", "marker-after-delta",
)  # fmt: skip
UNITS = tuple(f"postgres-unit-{at}" for at in ("after-claim", "after-rows", "before-commit", "after-commit"))
OF_SINK = {
    "delta": ("delta-unit-before-claim", "delta-unit-after-claim", "delta-unit-after-commit", "delta-before-write", "delta-after-write"),
    "postgres": ("postgres-before-units", *UNITS, "postgres-after-units"),
    "outbox": UNITS,
    "files": ("files-before-units", "files-unit-after-claim", "files-unit-mid-file", "files-unit-before-commit", "files-unit-after-commit", "files-after-units"),
}  # fmt: skip
OF_SINK["other"] = OF_SINK["postgres"]
BACKFILL = specification.points("backfill-")
REPLACE = {
    "delta": ("delta-before-replace", "delta-after-replace"),
    "postgres": ("postgres-unit-after-delete", "postgres-unit-before-commit", "postgres-unit-after-commit"),
    "files": ("files-unit-after-commit", "files-after-units"),
    "outbox": (),
}
REPLACE["other"] = REPLACE["postgres"]
REPROCESS = specification.points("reprocess-")
ALL_POINTS = tuple(dict.fromkeys(itertools.chain(STREAM, *OF_SINK.values(), BACKFILL, *REPLACE.values(), REPROCESS)))


@dataclass(frozen=True)
class Strike:
    """Within the step `at`, at the nth pass of a point."""

    at: str
    point: str
    nth: int


@dataclass(frozen=True)
class Case:
    """One life, with its strikes. `seed`: of its input."""

    kind: str
    sink: str
    life: str
    strikes: tuple[Strike, ...]
    seed: int

    def __str__(self) -> str:
        what = "-".join((self.kind, self.sink, self.life)).replace(" ", "_")
        struck = "-".join(f"{strike.at}.{strike.point}.{strike.nth}" for strike in self.strikes)
        return f"{what}-{struck}-{self.seed}"

    @property
    def way(self) -> str:
        """How its sink writes."""
        return self.sink.split()[-1]


def possible(kind: str, sink: str, life: str) -> bool:
    """Whether the declaration is allowed, and the life one that it can have."""
    way = sink.split()[-1]
    if kind in ("early", "totals") and way not in ("upsert", "files"):
        return False
    if way == "files" and kind in ("plain", "totals"):
        return False
    if way == "latest" and (kind not in ("windowed", "sliding") or life in ("backfill", "recompute", "planned")):
        return False
    if life in ("backfill", "recompute"):
        return kind not in ("plain", "totals")
    if (
        life == "planned"
    ):  # a session needs another name; what was sent, or has no window, stays as the old function made it
        return kind not in ("session", "plain") and sink != "outbox"
    return True


def product(seed: int) -> Iterator[Case]:
    """Each kind with each sink and each life, struck at its steps, at points drawn by the seed."""
    for kind, sink, life in itertools.product(KINDS, SINKS, LIVES):
        if possible(kind, sink, life):
            chance = random.Random(f"{seed} {kind} {sink} {life}")
            whole = chance.random() < 0.5
            strikes = [
                Strike(at, chance.choice(points), chance.choice((1, 1, 2, 3)))
                for at in STEPS
                if (points := _points(sink, life, at)) and not (at == "run" and whole)
            ]
            yield Case(kind, sink, life, tuple(strikes), chance.randrange(1000))


def _points(sink: str, life: str, at: str) -> tuple[str, ...]:
    of = sink.split()[0]
    # The sink's own points twice: there most is half done.
    stream = (*STREAM, *OF_SINK[of], *OF_SINK[of])
    if at == "run":
        return stream
    if at == "end":
        return (*stream, *BACKFILL, *REPLACE[of], *REPLACE[of]) if life == "recompute" else stream
    return {
        "backfill": (*BACKFILL, *REPLACE[of], *REPLACE[of]),
        "planned": (*stream, *BACKFILL, *REPLACE[of]),
        "reprocess": REPROCESS,
    }.get(life, ())
