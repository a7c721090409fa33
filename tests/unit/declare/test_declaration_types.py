"""What type checkers say of a declaration: mypy looks at this file in `make check`, and an ignored error that is none
is one (pyproject.toml)."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import pytest

from onlyonce import Delta, Files, FileSink, Fixed, Kafka, KafkaSink, Output, Pipeline, Postgres, Refused

COUNTS = Output(
    name="counts", transform="m:f", window=Fixed(timedelta(hours=1)), panes="early",
    sink=Postgres(table="results.counts", write="upsert", keys="window_start"),
)  # fmt: skip


def test_one_or_several_may_be_given_and_a_tuple_is_read() -> None:
    """For type checkers as at run time: a name, a list, a tuple."""
    one = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=COUNTS
    )
    some = Pipeline(
        name="p", source=Kafka(topic="t", servers="h:9092", headers="id"), schema="id string, at timestamp",
        record_id=("id", "at"), event_time="at", outputs=[COUNTS, Output(name="all", transform="m:g", sink=Delta())],
    )  # fmt: skip
    none = Pipeline(
        name="p", source=Files(), schema="at timestamp", record_id=(), event_time="at", outputs=(COUNTS,)
    )  # fmt: skip

    assert_type(one.record_id, tuple[str, ...])
    assert_type(some.outputs, tuple[Output, ...])
    assert (one.record_id, len(some.outputs), none.record_id) == (("id",), 2, ())
    assert KafkaSink(topic="t", connection="C", keys=["a"]).keys == ("a",)
    assert FileSink(format="csv").keys == ()


def test_what_is_wrong_is_wrong_for_type_checkers_too() -> None:
    """Each of these lines is an error of mypy, and refused when it runs."""
    with pytest.raises(Refused, match="write='upsrt'"):
        Delta(write="upsrt", keys="id")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="unknown option 'key'"):
        Delta(write="upsert", key="id")  # type: ignore[call-arg]
    with pytest.raises(Refused):
        Delta(write="upsert", keys=None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="late='drop'"):
        Output(name="counts", transform="m:f", sink=Delta(), late="drop")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="format='xml'"):
        Files(format="xml")  # type: ignore[arg-type]
