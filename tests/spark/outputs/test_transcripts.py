"""The transcripts through the product on real Spark: files, receive, `events`, outputs, tables.

What happens between two closes is one run, with one file and one batch of receive for each step, unless the
transcript asks for a run at each step. Then the tables must hold what all steps so far should have written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import onlyonce
from onlyonce import settings
from onlyonce.commitlog.backfills import Backfills
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import MILLI
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, reach
from onlyonce.database import connect
from onlyonce.records import left_out
from tests.spark.outputs.test_watermark import ends
from tests.support.platform import Platform
from tests.transcripts import pipelines, story, targets
from tests.transcripts.differences import differences
from tests.transcripts.story import FOLDER, Declared, Late, Outcome, Step, Story, Written

pytestmark = pytest.mark.spark
WHOLE = ("summer_time",)
"""Of `make test-all`; the others are told by `make test-faults`, and all of them on the model by `make check`."""

TOLD = story.all_in(FOLDER)
WRONG = story.read(FOLDER / "wrong" / "late_counted.yaml")


class Clock(datetime):
    """The receiving machine's clock, which shows what a transcript says."""

    shows: ClassVar[datetime]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        """What is set."""
        return cls.shows


@pytest.fixture
def platform(new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform with a pipeline for each transcript, whose clock can be set."""
    from onlyonce.outputs import query
    from onlyonce.receive import loop
    from onlyonce.run import idle

    for module in (loop, query, idle):
        monkeypatch.setattr(module, "datetime", Clock)
    return new_platform("tests/transcripts/pipelines.py")


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(told, id=told.name, marks=pytest.mark.whole if told.name in WHOLE else pytest.mark.slow)
        for told in TOLD
    ],
)
def test_spark_tells_the_same_story(
    platform: Platform, told: Story, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """After each run each table holds all that its output should have written, what is late is exactly what should be,
    and Spark's watermark is where the transcript says that windows are closed until."""
    with targets.there(platform, told, monkeypatch, request):
        assert played(platform, told) == []
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]


@pytest.mark.slow
def test_a_wrong_transcript_fails_on_spark_too(platform: Platform) -> None:
    """The control: the comparison with real tables finds a wrong expectation, and names it."""
    assert WRONG.must_say is not None
    what = WRONG.must_say.partition(": ")[2]
    assert any(what in sentence for sentence in played(platform, WRONG))


def played(platform: Platform, told: Story) -> list[str]:
    """Run a transcript; gives what differs after the first run that is not as told."""
    so_far: list[Step] = []
    for run in runs(told):
        for step in run:
            put(platform, told, step, len(so_far))
            so_far.append(step)
        Clock.shows = at(run[-1].clock)
        how = ["--bounded"] if told.bounded else ["--close"] if run[-1].kind == "ended" else []
        platform.run(told.name, *how)
        targets.deliver(told)
        said: list[str] = []
        for declared in told.outputs:
            expected = expected_of(declared, so_far)
            where = f"after step {len(so_far)}, {declared.name}"
            said += differences(where, expected, found(told, declared, platform))
        wanted = sum((step.invalid for step in so_far), Counter())
        if wanted.total() + sum(step.cut_short for step in so_far) != len(
            left_out.invalid(pipelines.pipeline(told), told.name, 100)[1]
        ):
            said.append(f"after step {len(so_far)}: another number of records is invalid")
        if said:
            return said
    return []


def runs(told: Story) -> Iterator[list[Step]]:
    """The steps, run by run. A close ends a run, and silence is a run of its own."""
    run: list[Step] = []
    for step in told.steps:
        apart = (
            run and not told.bounded and (told.each_step_runs or step.kind == "silent" or step.clock < run[-1].clock)
        )
        if apart or (run and run[-1].kind != "batch"):
            yield run
            run = []
        run.append(step)
    yield run


def put(platform: Platform, told: Story, step: Step, number: int) -> None:
    """A step's records as a file, listed when the run begins; and the table that outputs look up."""
    if step.table is not None:
        assert told.each_step_runs
        rows = pa.table({"key": list(step.table), "colour": list(step.table.values())})
        write_deltalake(str(settings.tables_dir() / "colours"), rows, mode="overwrite")
    if step.kind != "batch":
        return
    records = [
        {"number": number * 100 + n, "key": record.key, "at": at(record.time).isoformat()}
        for n, record in enumerate(step.records)
    ]
    path = platform.put(f"{told.name}/{step.source}" if step.source else told.name, f"{number:03}.jsonl", records)
    if step.compressed:
        targets.pack(path, step.compressed, cut_short=step.cut_short)


def expected_of(declared: Declared, steps: list[Step]) -> Outcome:
    """What a table should hold after these steps; an early pane replaces the one before."""
    outcomes = [step.expected[declared.name] for step in steps]
    writes: Written = Counter()
    for outcome in outcomes:
        if declared.panes != "on_time":
            again = {(key, bounds) for key, bounds, _ in outcome.writes}
            writes = Counter({one: n for one, n in writes.items() if one[:2] not in again})
        writes += outcome.writes
    late: Late = sum((outcome.late for outcome in outcomes), Counter())
    rejected: Late = sum((outcome.rejected for outcome in outcomes), Counter())
    return Outcome(writes, late, last_end(declared.window, outcomes[-1].closed), rejected)


def found(told: Story, declared: Declared, platform: Platform) -> Outcome:
    """What an output's table holds, what `onlyonce late` shows, and Spark's watermark."""
    instance = f"{told.name}@1" if told.bounded else told.name
    place = f"{told.name}/{declared.name}" + ("@1" if told.bounded else "")
    writes: Written = Counter()
    for row in (
        platform.table(place).to_dict("records") if declared.sink == "delta" else targets.rows(platform, told, declared)
    ):
        key = "+".join(filter(None, (row["mine"], row["other"]))) if declared.join else row["key"]
        writes[key, bounds(row), int(row.get("records", 1))] += 1
    late: Late = Counter()
    for row in left_out.late(pipelines.pipeline(told), instance, 1000)[1]:
        if row["output"] == declared.name:
            late[row["key"], micros_of(row["event_time"]), bounds(row)] += 1
    rejected: Late = Counter()
    for row in onlyonce.open(told.name).rejected(declared.name).to_dict("records") if declared.rejects else []:
        rejected[
            row["key"], micros_of(row["event_time"]), None if isinstance(declared.window, Session) else bounds(row)
        ] += 1
    triggered = not isinstance(declared.panes, str)  # its query has no watermark
    closed = None if told.bounded or declared.window is None or triggered else watermark(told.name, declared.name)
    if declared.made_from and not told.bounded:
        return Outcome(writes, late, by_the_log(told, declared), rejected)
    # The watermark of a join is behind what is closed by its reach.
    closed = None if closed is None else closed - reach(declared.window)
    return Outcome(writes, late, last_end(declared.window, closed), rejected)


def last_end(window: object, closed: int | None) -> int | None:
    """Up to where windows are closed, as far as one has ended: by that alone Spark's watermark may move. A session may
    end at any time, a join and a processor wait for times inside windows, and of a chain the log says it."""
    if closed is None or not isinstance(window, Fixed | Sliding) or isinstance(window, Joined | Chained):
        return closed
    return max(-(-end // MILLI) * MILLI for end in ends(window, closed))


def by_the_log(told: Story, declared: Declared) -> int | None:
    """Up to where the windows of an output without a watermark are closed."""
    reach = connect.run(
        connect.Database(settings.database_url()), lambda conn: Backfills(conn).reach(told.name, declared.name)
    )
    return reach.closed_until(pipelines.pipeline(told).output(declared.name))


def watermark(instance: str, output: str) -> int | None:
    """Spark's own, from the last batch that it planned."""
    planned = (settings.data_dir(instance) / "checkpoints" / output / "1" / "offsets").glob("[0-9]*")
    last = max(planned, key=lambda path: int(path.name))
    return int(json.loads(last.read_text().splitlines()[1])["batchWatermarkMs"]) * MILLI


def bounds(row: dict[str, Any]) -> tuple[int, int] | None:
    """A row's window, if it has one."""
    start = row.get("window_start")
    return None if start is None else (micros_of(start), micros_of(row["window_end"]))


def micros_of(time: datetime) -> int:
    """Whole microseconds since 1970."""
    found = to_micros(time)
    assert found is not None
    return found


def at(micros: int) -> datetime:
    """The time of whole microseconds."""
    time = to_time(micros)
    assert time is not None
    return time.astimezone(UTC)
