"""Count a source's input that no committed batch has read, and add up the answers of several sources. Pure.

A number that can't be known is None, never 0. `why` says why a value is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

ANSWER_SECONDS = 2.0
"""How long a source may take to answer. Whatever asks a source and shows its answer waits no longer."""
ASKING = "backlog-"
"""How the names of the threads begin that wait for a source's answer."""
KEPT_SECONDS = 15.0
"""How long an answer is kept, and shown again without another request."""


@dataclass(frozen=True)
class Backlog:
    """The unread input of a source.

    oldest    when the oldest of it came, by the source: a file's time of change, a message's time, a commit's time
    detail    how it is divided: {"files": 5}, {"versions": 3}, or by partition {"0": {"records": 7, "seconds": 12.5}}
    failed    whether the source did not answer; `why` says why
    skipped   the folders below its inbox that no run reads
    """

    records: int | None = 0
    bytes: int | None = 0
    oldest: datetime | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    why: str | None = None
    failed: bool = False
    skipped: frozenset[str] = frozenset()

    @property
    def waits(self) -> bool:
        """Return whether some input is known to be unread."""
        return bool(self.records or self.bytes) or self.oldest is not None

    def amount(self) -> str:
        """Return how much waits, in words: '5 files, 1,250 bytes'."""
        parts = [
            _counted(self.detail[name], name) for name in ("files", "pulled_files", "versions") if name in self.detail
        ]
        parts += [_counted(self.records, "records")] if self.records else []
        parts += [f"{self.bytes:,} bytes"] if self.bytes else []
        return ", ".join(parts) or "an unknown number of records"


def _counted(number: int, things: str) -> str:
    return f"{number:,} {things.removesuffix('s') if number == 1 else things}"


def no_answer(why: str) -> Backlog:
    """Return the answer of a source that did not answer: no value is known."""
    return Backlog(None, None, None, why=why, failed=True)


def not_in_time() -> Backlog:
    """Return the answer of a source that has not answered within ANSWER_SECONDS."""
    return no_answer(f"no answer within {ANSWER_SECONDS:g} s")


def together(parts: Iterable[Backlog]) -> Backlog:
    """Return the sum of several parts of unread input. A value is None if it is None in any part."""
    found = list(parts)
    whys = list(dict.fromkeys(one.why for one in found if one.why))
    detail: dict[str, Any] = {}
    for one in found:
        for name, value in one.detail.items():
            detail[name] = detail.get(name, 0) + value if isinstance(value, int) else value
    return Backlog(
        _sum(one.records for one in found),
        _sum(one.bytes for one in found),
        min((one.oldest for one in found if one.oldest), default=None),
        detail,
        "; ".join(whys) or None,
        any(one.failed for one in found),
        frozenset().union(*(one.skipped for one in found)),
    )


def of_files(files: Iterable[tuple[int, int, int | None]]) -> Backlog:
    """Return the backlog of unread files, given as (bytes, time of change in ns, records or None)."""
    found = list(files)
    times = [modified_ns for _, modified_ns, _ in found if modified_ns > 0]
    return Backlog(
        _sum(records for _, _, records in found),
        sum(size for size, _, _ in found),
        datetime.fromtimestamp(min(times) / 1e9, UTC) if times else None,
        {"files": len(found)} if found else {},
    )


def catch_up_seconds(records: int | None, a_second: float | None) -> float | None:
    """Return how long the records take at the rate of the last batches; None if one of the two is unknown."""
    if records is None or (records and not a_second):
        return None
    return round(records / a_second, 1) if records and a_second else 0.0


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
