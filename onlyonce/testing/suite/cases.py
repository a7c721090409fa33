"""The cases that every sink must pass. Deliberately broken sinks show that the suite fails a wrong one.

A sink is described by an `UnderTest`: how one attempt writes a batch (with what follows: finalize, deliver), what a
reader sees, how a new driver fences the old one, how its target breaks. A case is a function of it and of `Processes`,
which kills and stops real processes at the fail-points that a write passes; a sink has no say in which these are.
"""

from __future__ import annotations

import copy
import json
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, ClassVar

from onlyonce.model.errors import InvariantBroken, Superseded
from onlyonce.testing.suite.processes import Processes, answers_lost

Row = dict[str, Any]
Rows = Sequence[Row]
FIELDS = ("id", "key", "n", "text")
PARTITIONS = 2


class Guarantee(Enum):
    """What a sink promises, and the suite holds it to."""

    EXACTLY_ONCE = "each row once, whatever is killed and however often it is written"
    AT_LEAST_ONCE = "each row, and none twice where nothing was killed, lost or written again"


class UnderTest(ABC):
    """One sink on a platform of its own. `text` is the name of the column of texts, which may be odd."""

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    huge: ClassVar[int] = 3_000_000
    """The signs of the one huge row."""
    text: str = "text"

    @abstractmethod
    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """One attempt of this driver at a batch, to what readers see.

        The rows come in pieces of `cut`, in any order.
        """

    @abstractmethod
    def seen(self) -> list[Row]:
        """The rows that a reader of the target sees."""

    @abstractmethod
    def restart(self) -> None:
        """A new driver is at work; this object is it from now on. A copy made before is the old one."""

    @abstractmethod
    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """The ways in which its target is missing, read-only or full, each for as long as it is entered."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """The test is over."""

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """One after the other, the answers that a write waits for, each lost: its request arrived, or did not."""
        return answers_lost()


def make_rows(batch: int, count: int = 6) -> list[Row]:
    """Rows of a batch, each different, some of one key."""
    return [
        {"id": f"{batch}-{n}", "key": f"key {n % 3}", "n": 100 * batch + n, "text": f"text {n}"} for n in range(count)
    ]


def partition_of(row: Row) -> int:
    """The partition in which a row is pinned: by its key, whatever brings it."""
    return zlib.crc32(json.dumps(row["key"]).encode()) % PARTITIONS


def pieces(rows: Rows, cut: int) -> list[list[Row]]:
    """The rows as tasks of any number bring them: another cut is another order, too."""
    ordered = sorted(rows, key=lambda row: zlib.crc32(f"{cut} {row['id']}".encode()))
    return [ordered[first : first + cut] for first in range(0, len(ordered), cut)]


def multiset(rows: Rows) -> Counter[str]:
    """Rows as a multiset: a loss and a double can't cancel out."""
    return Counter(json.dumps([row[name] for name in FIELDS]) for row in rows)


def expect(sink: UnderTest, *batches: Rows, again: bool = True) -> None:
    """Stop unless a reader sees these rows, as the sink promises.

    `again`: something was killed, lost or written again.
    """
    wanted, seen = multiset([row for rows in batches for row in rows]), multiset(sink.seen())
    if again and sink.guarantee is Guarantee.AT_LEAST_ONCE:
        assert not wanted - seen, "rows are lost"
        assert wanted.keys() == seen.keys(), "rows are there that nobody wrote"
    else:
        assert seen == wanted, f"too few: {wanted - seen}, too many: {seen - wanted}"


# --- the cases ---------------------------------------------------------------------------------------


def each_row_is_there_once(sink: UnderTest, processes: Processes) -> None:
    """Two batches, nothing goes wrong."""
    sink.write(0, make_rows(0))
    sink.write(1, make_rows(1))
    expect(sink, make_rows(0), make_rows(1), again=False)


def a_unit_written_twice_is_there_once(sink: UnderTest, processes: Processes) -> None:
    """By the same driver, and by the next one."""
    for _ in range(2):
        sink.write(0, make_rows(0))
    sink.restart()
    sink.write(0, make_rows(0))
    expect(sink, make_rows(0))


def of_twins_one_writes(sink: UnderTest, processes: Processes) -> None:
    """One attempt stands still at each of its points while its twin, of the same driver, does what it can."""
    sink.write(0, make_rows(0))
    points = processes.points(lambda: sink.write(1, make_rows(1)))
    batches = [make_rows(0), make_rows(1)]
    for batch, point in enumerate(points, 2):
        batches.append(make_rows(batch))
        one = processes.stopped(lambda: sink.write(batch, make_rows(batch)), point)  # noqa: B023 - run at once
        twin = processes.started(lambda: sink.write(batch, make_rows(batch)))  # noqa: B023
        processes.ended_or_waiting(twin)
        ends = processes.ends(one, twin)
        assert not all(ends), f"at {point} both twins failed: {ends}"
        sink.write(batch, make_rows(batch))
    expect(sink, *batches)


def a_zombie_changes_nothing(sink: UnderTest, processes: Processes) -> None:
    """A process stands still at each of its points; a new driver does its work; it wakes up."""
    sink.write(0, make_rows(0))
    points = processes.points(lambda: sink.write(1, make_rows(1)))
    batches = [make_rows(0), make_rows(1)]
    for batch, point in enumerate(points, 2):
        batches.append(make_rows(batch))
        zombie = processes.stopped(lambda: sink.write(batch, make_rows(batch)), point)  # noqa: B023 - run at once
        sink.restart()
        sink.write(batch, make_rows(batch))
        processes.ends(zombie)
    expect(sink, *batches)


def a_kill_at_any_point_does_not_show(sink: UnderTest, processes: Processes) -> None:
    """SIGKILL before and after each effect; then the next driver writes the same batch."""
    points = processes.points(lambda: sink.write(0, make_rows(0)))
    batches = [make_rows(0)]
    for batch, point in enumerate(points, 1):
        batches.append(make_rows(batch))
        processes.killed(lambda: sink.write(batch, make_rows(batch)), point)  # noqa: B023 - run at once
        sink.restart()
        sink.write(batch, make_rows(batch))
    expect(sink, *batches)


def a_lost_answer_does_not_show(sink: UnderTest, processes: Processes) -> None:
    """Each answer that a write waits for is lost, once where the request arrived and once where it did not."""
    batches: list[Rows] = []
    for batch, lost in enumerate(sink.answers_lost()):
        batches.append(make_rows(batch, 2))
        with lost:
            sink.write(batch, make_rows(batch, 2))
        sink.restart()
        sink.write(batch, make_rows(batch, 2))
    assert len(batches) > 1
    expect(sink, *batches)


def another_cut_of_the_rows_is_the_same_unit(sink: UnderTest, processes: Processes) -> None:
    """Killed in the middle, the batch comes again as other tasks bring it: other pieces in another order."""
    rows = make_rows(1, 20)
    points = processes.points(lambda: sink.write(0, make_rows(0, 20)))
    processes.killed(lambda: sink.write(1, rows, cut=7), points[len(points) // 2])
    sink.restart()
    for cut in (2, 20):
        sink.write(1, rows, cut=cut)
    expect(sink, make_rows(0, 20), rows)


def a_late_record_makes_no_second_version(sink: UnderTest, processes: Processes) -> None:
    """e0, e1, e2 are written; killed before or after each effect; the replay has e3, too. There is one version of the
    batch, and e3 is in it or in a later one, once. A replay that means other rows than are there is stopped, loudly."""
    points = processes.points(lambda: sink.write(0, make_rows(0)))
    batches = [make_rows(0)]
    for number, point in enumerate(points, 1):
        rows = make_rows(number, 4)
        batches.append(rows)
        processes.killed(lambda: sink.write(2 * number, rows[:3]), point)  # noqa: B023 - run at once
        sink.restart()
        stopped = sink.guarantee is Guarantee.AT_LEAST_ONCE  # there the offsets alone say what a replay reads
        try:
            if not stopped:
                sink.write(2 * number, rows)
        except InvariantBroken:
            stopped = True
        if stopped:
            sink.write(2 * number, rows[:3])
            sink.write(2 * number + 1, rows[3:])
    expect(sink, *batches)


def a_replay_of_other_rows_is_stopped(sink: UnderTest, processes: Processes) -> None:
    """It is no shrug: InvariantBroken, and the rows that were there are what is there."""
    if sink.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    sink.write(0, make_rows(0))
    try:
        sink.write(0, [row | {"text": "other"} for row in make_rows(0)])
    except InvariantBroken:
        expect(sink, make_rows(0))
        return
    raise AssertionError("a replay of other rows was taken in silence")


def a_fenced_driver_writes_nothing(sink: UnderTest, processes: Processes) -> None:
    """Superseded, and nothing of it is there; the new driver writes the batch."""
    sink.write(0, make_rows(0))
    old = copy.copy(sink)
    sink.restart()
    try:
        old.write(1, make_rows(1))
    except Superseded:
        expect(sink, make_rows(0))
    else:
        raise AssertionError("a driver of an older epoch has written")
    sink.write(1, make_rows(1))
    expect(sink, make_rows(0), make_rows(1))
