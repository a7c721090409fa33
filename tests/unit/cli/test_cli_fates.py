"""The rows that `onlyonce late` shows: found on whole columns, and the same as by the model's rule, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api.pipeline import Custom, Delta, DeltaSource, Files, Growing, Kafka, Output, Pipeline
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.frontier import Frontier, is_late
from onlyonce.core.windows import Fixed, Session, Sliding, Window, micros
from onlyonce.records import left_out
from onlyonce.sources.listing import Csv, _other_header

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FRONTIERS = [
    Frontier(),
    Frontier(max_event_time=to_micros(WHEN + timedelta(hours=5, microseconds=1))),
    Frontier(max_event_time=to_micros(WHEN), ended=to_micros(WHEN + 3 * HOUR)),
    Frontier(to_micros(WHEN), None, to_micros(WHEN + 4 * HOUR), to_micros(WHEN + 2 * HOUR)),
    Frontier(max_event_time=-1, ended=-7_200_000_001),
]


@pytest.mark.parametrize(
    "window",
    [
        Fixed(HOUR),
        Sliding(2 * HOUR, HOUR / 2),
        Session(HOUR),
        Fixed(HOUR, HOUR / 4),
        Sliding(2 * HOUR, HOUR / 2, HOUR / 5),
        Fixed(24 * HOUR, 4 * HOUR, "Australia/Lord_Howe"),
    ],
    ids=str,
)
def test_late_rows_are_those_of_the_models_rule(window: Window) -> None:
    output = Output(name="o", transform="m:f", sink=Delta(), window=window, watermark_delay=HOUR / 2)
    rows = [
        (to_micros(WHEN + n * HOUR / 7) or 0, known) for n in range(-30, 60) for known in FRONTIERS
    ] + [(-1, known) for known in FRONTIERS]  # fmt: skip
    found = {
        (at, int(ends[at]))
        for _, ends, positions in left_out.late_pairs(_events(rows), output)
        for at in positions.tolist()
    }

    wanted = set()
    for at, (time, known) in enumerate(rows):
        ends = [window.last_end(time)] if isinstance(window, Session) else [end for _, end in window.assign(time)]
        wanted |= {(at, end) for end in ends if is_late(known, window, micros(output.watermark_delay), time, end)}
    assert found == wanted
    assert wanted


def test_an_invalid_record_has_the_line_of_an_editor(tmp_path: Path) -> None:
    """By its byte, if the file is there, is not compressed, and a line begins with this byte."""
    file, gone = tmp_path / "a, byte 3.csv", tmp_path / "gone.csv"
    file.write_bytes(b"id\r\n" + "ä\n".encode() + b"\n3\n")
    lines = {
        f"{file}, byte {at}": line for at, line in ((0, 1), (4, 2), (5, None), (7, 3), (8, 4), (10, 5), (11, None))
    }
    lines |= {
        f"{gone}, byte 0": None,
        f"{file}, byte 4 of its content": None,
        f"{file}": None,
        "topic t, partition 0, offset 4": None,
    }
    rows = [{"reason": "r", "place": place, "raw": "x"} for place in reversed(lines)]

    found = left_out.with_lines(rows)

    assert {row["place"]: row["line"] for row in found} == lines
    assert {tuple(row) for row in found} == {("reason", "place", "line", "raw")}


@pytest.mark.parametrize(
    ("source", "instance", "again"),
    [
        (Files(), "p", True),
        (Files(), "p@1", False),
        (Files(format="csv"), "p", False),
        (Kafka(topic="t", servers="here:9092"), "p", False),
        (DeltaSource(path="/lake/t"), "p", False),
        (Custom(reader="m:R", needs_dedup=True), "p", False),
        ({"a": Files(), "b": Files(format="csv")}, "p", False),
    ],
)
def test_next_step_after_invalid_records_is_possible(source: Any, instance: str, again: bool) -> None:
    """A reprocessing is named only if it takes the records of this source."""
    several = {"sources": source, "id_space": "shared"} if isinstance(source, dict) else {"source": source}
    pipeline = Pipeline(
        name="p", **several, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip

    said = left_out.after_invalid(pipeline, instance)

    assert ("`onlyonce reprocess p --invalid`" in said) == again
    assert ("in a file with a new name" in said) == isinstance(source, Files)
    over = left_out.after_invalid(pipeline, instance, invalid_lost=1234)
    assert "`onlyonce drop p --tables`" in over
    assert "1,234 invalid records of p would be removed too" in over
    assert "`onlyonce invalid p --limit 1234 --json`" in over


@pytest.mark.parametrize(
    ("source", "lines", "said"),
    [
        (Files(), ["id;at", "1;2"], "format='csv', delimiter=';'"),
        (Files(), ["id,at", "1,2"], "format='csv', and"),
        (Files(), ["id,at", '{"id": 1, "at": 2}'], ""),
        (Files(), ["id", "1"], ""),
        (Files(), [], ""),
        (Files(format="csv"), ["id;at"], ""),
    ],
)
def test_lines_of_another_format_are_recognised(source: Any, lines: list[str], said: str) -> None:
    pipeline = Pipeline(
        name="p", source=source, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip

    found = left_out.of_other_format(pipeline, [{"raw": line} for line in lines])

    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        (Files(format="csv"), "id,at", "header=True takes the first line"),
        (Files(format="csv", delimiter=";"), '"ID";at ', "header=True takes the first line"),
        (Files(format="csv"), "id,at,more", "header=True"),
        (Files(format="csv"), "id,2026-01-01", ""),
        (Files(format="csv"), '"id', ""),
        (Files(format="csv"), None, ""),
        (Files(format="csv", header=True), "id,at", ""),
        (Files(), "id,at", ""),
        (Growing(format="csv"), "id,at", "Growing reads no headers"),
        ({"a": Files(format="csv"), "b": Files()}, "id,at", "header=True takes the first line"),
    ],
)
def test_header_that_was_read_as_a_record_is_recognised(source: Any, line: str | None, said: str) -> None:
    several = {"sources": source, "id_space": "shared"} if isinstance(source, dict) else {"source": source}
    pipeline = Pipeline(
        name="p", **several, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip

    found = left_out.header_in(pipeline, ["1,2", line])

    assert said in found
    assert bool(found) == bool(said)
    assert left_out.of_other_format(pipeline, [{"raw": None}]) == ""


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        (Files(format="csv"), "1;2026-01-01", "delimiter=';'"),
        (Files(format="csv", delimiter=";"), "1,2026-01-01", "delimiter=','"),
        (Files(format="csv"), "1,x", ""),
        (Files(format="csv"), "1,2;3", ""),
        (Files(format="csv"), '1;"', ""),
        (Files(), "1;2026-01-01", ""),
    ],
)
def test_lines_by_another_delimiter_get_its_option(source: Any, line: str, said: str) -> None:
    assert said in (found := left_out.other_delimiter(csv_pipeline(source), [None, line]))
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [(Files(), "[", "jq"), (Files(), ' [{"id": "1"}]', "jq"), (Files(), "]", ""), (Files(format="csv"), "[", "")],
)
def test_lines_of_an_array_get_what_makes_records_of_it(source: Any, line: str, said: str) -> None:
    assert said in (found := left_out.of_lines(csv_pipeline(source), [None, line]))
    assert bool(found) == bool(said)


@pytest.mark.parametrize(("first", "said"), [("id;at", "delimiter=';'"), ("1,2026", "header=False"), ("id,on", "")])
def test_first_line_that_is_no_header_gets_an_option(first: str, said: str) -> None:
    """By the reason of the whole file."""
    reason = _other_header(f"{first}\n".encode(), ["id", "at"], Csv(100))
    assert said in (found := left_out.other_header(csv_pipeline(Files(format="csv", header=True)), [str(reason)]))
    assert bool(found) == bool(said)


def csv_pipeline(source: Any) -> Pipeline:
    return Pipeline(
        name="p", source=source, schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip


def test_lines_of_another_encoding_get_its_option() -> None:
    """Of CSV: JSON is UTF-8 by its standard."""
    for source, said in ((Files(format="csv"), True), (Files(), False)):
        pipeline = Pipeline(
            name="p", source=source, schema="id string, at timestamp", record_id="id", event_time="at",
            outputs=Output(name="o", transform="m:f", sink=Delta()),
        )  # fmt: skip
        reasons = ["the line is blank", "the line is not UTF-8; its bytes are in hexadecimal"]

        assert ("encoding='windows-1252'" in left_out.other_encoding(pipeline, reasons)) is said
        assert left_out.other_encoding(pipeline, reasons[:1]) == ""


def _events(rows: list[tuple[int, Frontier]]) -> pa.RecordBatch:
    instant = pa.timestamp("us", tz="UTC")
    frontier = pa.struct(
        [(name, instant) for name in ("max_event_time", "ended", "silent_max_event_time", "silent_clock")]
    )
    stamped = [{name: to_time(value) for name, value in vars(known).items()} for _, known in rows]
    columns = {
        "oo_event_time": pa.array([to_time(time) for time, _ in rows], instant),
        "oo_frontier": pa.array(stamped, frontier),
    }
    return pa.RecordBatch.from_pydict(columns)
