"""The cases that every sink must pass, including a user's own: docs/how-to/own-sink.md.

An `UnderTest` describes a sink: how one attempt writes a batch (with finalize and deliver), and what a reader sees. It
also says how a new driver fences the old one, and how the target breaks. A case is a function of it and of `Processes`,
which kills and stops real processes at the fail-points that a write passes. A sink has no influence on these points.
Deliberately broken sinks show that the suite fails a wrong one.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from onlyonce.api.pipeline import CustomSink, Output, Sent
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Superseded
from onlyonce.core.units import UnitId
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.outbox import deliver
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.testing.scratch import Log, Processes, answers_lost

Row = dict[str, Any]
Rows = Sequence[Row]
FIELDS = ("id", "key", "n", "text")
PARTITIONS = 2


class Guarantee(Enum):
    """The guarantee that a sink promises and the suite requires."""

    EXACTLY_ONCE = "each row once, whatever is killed and however often it is written"
    AT_LEAST_ONCE = "each row, and none twice where nothing was killed, lost or written again"


class UnderTest(ABC):
    """One sink on a platform of its own. `text` is the name of the string column, which may be odd."""

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    huge: ClassVar[int] = 3_000_000
    """The characters of the huge row."""
    text: str = "text"

    @abstractmethod
    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """Write a batch as one attempt of this driver, up to what readers see.

        The rows come in pieces of `cut`, in any order.
        """

    @abstractmethod
    def seen(self) -> list[Row]:
        """Return the rows that a reader of the target sees."""

    @abstractmethod
    def restart(self) -> None:
        """Start a new driver, which this object is from now on. A copy made before is the old one."""

    @abstractmethod
    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """Return the ways in which its target is missing, read-only or full, each for as long as it is entered."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """End the test."""

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """Yield the answers that a write waits for, one after the other, each lost: its request arrived, or did not."""
        return answers_lost()


def make_rows(batch: int, count: int = 6) -> list[Row]:
    """Return rows of a batch, each different, some with the same key."""
    return [
        {"id": f"{batch}-{n}", "key": f"key {n % 3}", "n": 100 * batch + n, "text": f"text {n}"} for n in range(count)
    ]


def partition_of(row: Row) -> int:
    """Return the partition in which a row is pinned: by its key, whatever task brings it."""
    return zlib.crc32(json.dumps(row["key"]).encode()) % PARTITIONS


def pieces(rows: Rows, cut: int) -> list[list[Row]]:
    """Return the rows as any number of tasks bring them: another cut is another order, too."""
    ordered = sorted(rows, key=lambda row: zlib.crc32(f"{cut} {row['id']}".encode()))
    return [ordered[first : first + cut] for first in range(0, len(ordered), cut)]


def multiset(rows: Rows) -> Counter[str]:
    """Return rows as a multiset: a loss and a double can't cancel out."""
    return Counter(json.dumps([row[name] for name in FIELDS]) for row in rows)


def expect(sink: UnderTest, *batches: Rows, again: bool = True) -> None:
    """Assert that a reader sees these rows, as the sink promises.

    `again`: something was killed, lost or written again.
    """
    wanted, seen = multiset([row for rows in batches for row in rows]), multiset(sink.seen())
    if again and sink.guarantee is Guarantee.AT_LEAST_ONCE:
        assert not wanted - seen, "rows are lost"
        assert wanted.keys() == seen.keys(), "rows are there that were never written"
    else:
        assert seen == wanted, f"too few: {wanted - seen}, too many: {seen - wanted}"


# --- the cases ---------------------------------------------------------------------------------------


def each_row_is_there_once(sink: UnderTest, processes: Processes) -> None:
    """Write two batches; nothing fails."""
    sink.write(0, make_rows(0))
    sink.write(1, make_rows(1))
    expect(sink, make_rows(0), make_rows(1), again=False)


def a_unit_written_twice_is_there_once(sink: UnderTest, processes: Processes) -> None:
    """Write a batch again by the same driver, and by the next one."""
    for _ in range(2):
        sink.write(0, make_rows(0))
    sink.restart()
    sink.write(0, make_rows(0))
    expect(sink, make_rows(0))


def of_twins_one_writes(sink: UnderTest, processes: Processes) -> None:
    """Stop one attempt at each of its points while its twin, of the same driver, does what it can."""
    sink.write(0, make_rows(0))
    points = processes.points(lambda: sink.write(1, make_rows(1)))
    batches = [make_rows(0), make_rows(1)]
    for batch, point in enumerate(points, 2):
        batches.append(make_rows(batch))
        one = processes.stopped(lambda: sink.write(batch, make_rows(batch)), point)  # noqa: B023 - run at once
        twin = processes.started(lambda: sink.write(batch, make_rows(batch)))  # noqa: B023
        processes.ended_or_waiting(twin)
        exit_codes = processes.ends(one, twin)
        assert not all(exit_codes), f"at {point} both twins failed: {exit_codes}"
        sink.write(batch, make_rows(batch))
    expect(sink, *batches)


def a_zombie_changes_nothing(sink: UnderTest, processes: Processes) -> None:
    """Stop a process at each of its points; let a new driver do its work; continue the process."""
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
    """Kill before and after each effect (SIGKILL); then the next driver writes the same batch."""
    points = processes.points(lambda: sink.write(0, make_rows(0)))
    batches = [make_rows(0)]
    for batch, point in enumerate(points, 1):
        batches.append(make_rows(batch))
        processes.killed(lambda: sink.write(batch, make_rows(batch)), point)  # noqa: B023 - run at once
        sink.restart()
        sink.write(batch, make_rows(batch))
    expect(sink, *batches)


def a_lost_answer_does_not_show(sink: UnderTest, processes: Processes) -> None:
    """Lose each answer that a write waits for, once when the request arrived and once when it did not."""
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
    """Kill a batch in the middle; other tasks bring it again: other pieces in another order."""
    rows = make_rows(1, 20)
    points = processes.points(lambda: sink.write(0, make_rows(0, 20)))
    processes.killed(lambda: sink.write(1, rows, cut=7), points[len(points) // 2])
    sink.restart()
    for cut in (2, 20):
        sink.write(1, rows, cut=cut)
    expect(sink, make_rows(0, 20), rows)


def a_late_record_makes_no_second_version(sink: UnderTest, processes: Processes) -> None:
    """Write e0, e1, e2, kill before or after each effect, and replay with e3, too.

    There is one version of the batch, and e3 is in it or in a later one, once. A replay raises if its rows differ from
    the written rows.
    """
    points = processes.points(lambda: sink.write(0, make_rows(0)))
    batches = [make_rows(0)]
    for number, point in enumerate(points, 1):
        rows = make_rows(number, 4)
        batches.append(rows)
        processes.killed(lambda: sink.write(2 * number, rows[:3]), point)  # noqa: B023 - run at once
        sink.restart()
        # At least once has no units that detect different rows, so only the rows of the offsets are replayed.
        replay_original = sink.guarantee is Guarantee.AT_LEAST_ONCE
        try:
            if not replay_original:
                sink.write(2 * number, rows)
        except InvariantBroken:
            replay_original = True
        if replay_original:
            sink.write(2 * number, rows[:3])
            sink.write(2 * number + 1, rows[3:])
    expect(sink, *batches)


def a_replay_of_other_rows_is_stopped(sink: UnderTest, processes: Processes) -> None:
    """Raise InvariantBroken if the rows differ, and keep the rows that were written."""
    if sink.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    sink.write(0, make_rows(0))
    try:
        sink.write(0, [row | {"text": "other"} for row in make_rows(0)])
    except InvariantBroken:
        expect(sink, make_rows(0))
        return
    raise AssertionError("a replay with different rows was accepted in silence")


def a_fenced_driver_writes_nothing(sink: UnderTest, processes: Processes) -> None:
    """Raise Superseded with nothing written; the new driver writes the batch."""
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


# The cases about what rows hold and what a target is; and the list of all cases.


ODD = [
    "",
    " ",
    "null",
    "NULL",
    r"\N",
    r"\.",
    "\\",
    r"C:\new\table",
    '"',
    '""',
    "'",
    "it's",
    "''; DROP TABLE units; --",
    "a,b;c\td",
    "one\ntwo",
    "\r\n",
    "🛒 çé 漢字 \u202e",
    '{"a": 1}',
    "$1 %s :x %(n)s",
    "-- x",
    "../../etc/passwd",
    "/dev/null",
    "{window_start}",
    "a\u2028b\x1fc\x7f",
    "`x`",
    "<b>&amp;</b>",
    "=1+1",
    "\ufeffbom",
    "x" * 20_000,
]
ODD_NAMES = ['we"ird; DROP TABLE "units', "it's", "ключ 🛒", "a b\tc", "../up", "{shard}", "%s", "text`"]


def an_empty_partition_is_a_unit_too(sink: UnderTest, processes: Processes) -> None:
    """Write rows of one key, so of one partition; and a batch without rows."""
    one = [row | {"key": "same"} for row in make_rows(0)]
    for batch, rows in enumerate((one, [], make_rows(2))):
        sink.write(batch, rows)
        sink.restart()
        sink.write(batch, rows)
    expect(sink, one, make_rows(2))


def a_huge_row_arrives_whole(sink: UnderTest, processes: Processes) -> None:
    """Write one huge row among small ones."""
    rows: list[Row] = [*make_rows(0), {"id": "huge", "key": "key 0", "n": 7, "text": "é🛒x\n" * (sink.huge // 5)}]
    sink.write(0, rows)
    expect(sink, rows, again=False)


def null_keys_are_a_key_like_any_other(sink: UnderTest, processes: Processes) -> None:
    """Keep null as null: it is not '' and not 'null'."""
    rows: list[Row] = [
        {"id": f"{n}", "key": key, "n": n, "text": text}
        for n, (key, text) in enumerate([(None, None), (None, ""), ("", None), ("null", "null"), (None, "null")])
    ]
    sink.write(0, rows)
    sink.restart()
    sink.write(0, rows)
    expect(sink, rows)


def odd_signs_mean_only_themselves(sink: UnderTest, processes: Processes) -> None:
    """Write odd characters in values, in keys and in ids."""
    rows: list[Row] = [{"id": f"{n} {odd}", "key": odd, "n": n, "text": odd} for n, odd in enumerate(ODD)]
    sink.write(0, rows)
    sink.restart()
    sink.write(0, rows, cut=5)
    expect(sink, rows)


def odd_names_mean_only_themselves(sink: UnderTest, processes: Processes) -> None:
    """Use odd column names: a column's name is a name, whatever it looks like."""
    rows = make_rows(0)
    sink.write(0, rows)
    expect(sink, rows, again=False)


def a_broken_target_is_loud_and_loses_nothing(sink: UnderTest, processes: Processes) -> None:
    """Break the target (missing, read-only, full): an error, no half of a batch; after the repair the batch is
    written."""
    ways = sink.broken()
    assert ways
    batches = []
    for batch, (way, entered) in enumerate(ways.items()):
        rows = make_rows(batch)
        with entered():
            try:
                sink.write(batch, rows)
            except Exception:
                silent = False
            else:
                silent = True
        assert not silent, f"the target was {way}, and no error was raised"
        sink.restart()
        sink.write(batch, rows)
        batches.append(rows)
    expect(sink, *batches)


Case = Callable[[UnderTest, Processes], None]
CASES: tuple[Case, ...] = (
    each_row_is_there_once,
    a_unit_written_twice_is_there_once,
    of_twins_one_writes,
    a_zombie_changes_nothing,
    a_kill_at_any_point_does_not_show,
    a_lost_answer_does_not_show,
    another_cut_of_the_rows_is_the_same_unit,
    a_late_record_makes_no_second_version,
    a_replay_of_other_rows_is_stopped,
    a_fenced_driver_writes_nothing,
    an_empty_partition_is_a_unit_too,
    a_huge_row_arrives_whole,
    null_keys_are_a_key_like_any_other,
    odd_signs_mean_only_themselves,
    odd_names_mean_only_themselves,
    a_broken_target_is_loud_and_loses_nothing,
)


# A task as Spark runs it on an executor, without Spark: the product's own function over Arrow batches.


class Context:
    """Stands in for Spark's TaskContext."""

    def __init__(self, partition: int, attempt: int = 0) -> None:
        self._partition, self._attempt = partition, attempt

    def partitionId(self) -> int:
        return self._partition

    def stageId(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return self._attempt


def run_unit(
    task: Callable[[Any], Iterator[pa.RecordBatch]], brought: Iterator[pa.RecordBatch], partition: int
) -> None:
    """Run a task as Spark runs it on an executor."""
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition)):
        list(task(brought))


def hashed(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Return the batch with the two columns of Spark's plan: a hash of the exact columns, the target partition."""
    exact = [c for c in batch.schema.names if not pa.types.is_floating(batch.schema.field(c).type)]
    hashes = [hash_of(row) for row in batch.select(exact).to_pylist()]
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns[HASH] = pa.array(np.array(hashes, dtype=np.int64))
    columns[PARTITION] = pc.cast(pa.repeat(partition, batch.num_rows), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def hash_of(row: dict[str, Any]) -> int:
    """Return a 64-bit hash of a row; any will do that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), "big", signed=True)


NUMBERS = itertools.count()


@dataclass
class OfLog(UnderTest):
    """A sink whose units are in the platform's log, as the suite sees it."""

    log: Log
    text: str = "text"
    output: str = field(init=False)
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        # Tests share a platform: creating one takes longer than a case.
        self.output = f"kept{next(NUMBERS)}"
        self.driver = self.log.start("shop", self.output)

    def restart(self) -> None:
        """Bump the epoch; sessions of the older driver end."""
        self.driver = self.log.restart(self.driver)

    def unit(self, batch: int) -> UnitId:
        """Return the unit of a batch's first partition."""
        return UnitId(self.driver.incarnation, batch, self.output, 0)

    def brought(self, rows: Rows, cut: int) -> Iterator[tuple[int, list[list[Row]]]]:
        """Yield each partition's rows, with the string column under its name, in the pieces in which tasks bring
        them."""
        for partition in range(PARTITIONS):
            mine = [
                {self.text if name == "text" else name: value for name, value in row.items()}
                for row in rows
                if partition_of(row) == partition
            ]
            yield partition, pieces(mine, cut)


# A user's own sink as the suite sees it: rows staged by the product's own task, then delivered.


STAGED = pa.schema(
    [
        ("instance", pa.string()),
        ("output", pa.string()),
        ("unit", pa.string()),
        ("seq", pa.int64()),
        ("checkpoint_id", pa.string()),
        ("state", pa.string()),
        ("key", pa.string()),
        ("payload", pa.string()),
    ]
)


@dataclass
class OfOutbox(OfLog):
    """Shared by all sinks of the outbox. `keyed`: rows of a key are sent in order."""

    keyed: ClassVar[bool] = True

    def sink(self) -> Sent:
        """Return the sink as it is declared."""
        raise NotImplementedError

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """Run a task for each partition; then one delivery, which gives way if another is running."""
        work = postgres_unit.Work(
            self.driver.session(self.log.database), self.unit(batch), self.driver.epoch,
            stored_names.PRIVATE_SCHEMA, "outbox", "append", (), (),
        )  # fmt: skip
        checkpoint_id = OutboxRows(self.log.database).origin(self.driver.incarnation).checkpoint_id
        for partition, parts in self.brought(rows, cut):
            # As Spark's sort within the partition orders them, however they were cut.
            ordered = sorted((row for part in parts for row in part), key=lambda row: (str(row["key"]), row["id"]))
            unit = str(UnitId(self.driver.incarnation, batch, self.output, partition))
            staged = [
                {
                    "instance": "shop",
                    "output": self.output,
                    "unit": unit,
                    "seq": seq,
                    "checkpoint_id": checkpoint_id,
                    "state": "waiting",
                    "key": json.dumps({"key": row["key"]}) if self.keyed else str(seq % 50),
                    "payload": json.dumps(row, ensure_ascii=False),
                }
                for seq, row in enumerate(ordered)
            ]
            brought = (pa.RecordBatch.from_pylist(staged[n : n + cut], STAGED) for n in range(0, len(staged), cut))
            run_unit(postgres_unit.write_unit(work), (hashed(batch, partition) for batch in brought), partition)
        deliver.deliver(self.log.database, "shop", Output(name=self.output, transform="a:b", sink=self.sink()))

    def restart(self) -> None:
        """Start a new driver, and take the lock from a deliverer that stands still."""
        self.log.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s AND xact_start IS NOT NULL",
            f"onlyonce/shop/{self.output}/deliver",
        )
        super().restart()

    def plain(self, rows: list[Row]) -> list[Row]:
        """Return rows with the string column under the suite's name."""
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in rows]


@dataclass
class OwnSink(OfOutbox):
    """For a user's own sink: set `target_class`, its declared `guarantee` and `where`, and write `seen` and
    `broken`."""

    target_class: ClassVar[str]

    @property
    @abstractmethod
    def where(self) -> str:
        """Return where it writes: another place for each test, so that tests don't see each other's rows.

        `self.output` is unique.
        """

    def sink(self) -> Sent:
        """Return the sink as a user declares it."""
        return CustomSink(target_class=self.target_class, where=self.where, keys=("key",))


# How a user's test file calls the suite:
#
#     @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
#     def test_my_sink(case, onlyonce_log, tmp_path):
#         case(MySink(onlyonce_log), Processes(onlyonce_log, tmp_path))


__all__ = ["CASES", "Guarantee", "OwnSink", "Processes", "Row", "UnderTest"]
