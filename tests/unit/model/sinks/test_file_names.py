"""Names of files by a user's function: what can be known before the first run is refused by `check`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import check
from onlyonce.api import load
from onlyonce.api.pipeline import Files, FileSink, Output, Pipeline
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed, Session, Sliding

HERE = "tests.support.named_files"
HOURS = Fixed(timedelta(hours=1))


def pipeline(name: str, window: Any = HOURS, **options: Any) -> Pipeline:
    """Return a pipeline with one output of files that this function names."""
    output = Output(
        name="mine", transform=f"{HERE}:by_day", window=window, panes="on_time" if window else "early",
        sink=FileSink(names=f"{HERE}:{name}", **options),
    )  # fmt: skip
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at", outputs=output
    )  # fmt: skip


def checked(declared: Pipeline) -> None:
    """Call the function as `onlyonce check` does."""
    for output in load.with_names(declared.outputs):
        check.check_names(declared, output)


@pytest.mark.parametrize(
    "name, window",
    [("by_day", HOURS), ("by_day", Sliding(timedelta(hours=2), timedelta(hours=1))), ("of_totals", None)],
)
def test_names_of_window_pane_and_shard_pass_the_check(name: str, window: Any) -> None:
    checked(pipeline(name, window))
    checked(pipeline(name, window, shards=10_000))


@pytest.mark.parametrize(
    "name, says",
    [
        ("without_pane", "gives two files the name"),
        ("without_shard", "gives two files the name"),
        ("without_day", "gives two files the name"),
        ("counting", "gives one file two names"),
        ("failing", "fails (window [2026-01-01 00:00:00.000000"),
        ("of_three", "takes 3 positional arguments but 4 were given"),
        ("above", "no safe path"),
        ("absolute", "no safe path"),
        ("broken", "no safe path"),
        ("hidden", "no safe path"),
        ("other_format", "must end with '.jsonl'"),
        ("folder_like_a_file", "must end with '.jsonl'"),
        ("number", "it is a int"),
        ("long", "longer than 255 bytes"),
    ],
)
def test_function_that_cannot_name_files_is_refused_by_the_check(name: str, says: str) -> None:
    with pytest.raises(Refused) as refused:
        checked(pipeline(name))
    assert says in refused.value.what
    assert f"{HERE.replace('.', '/')}.py:" in refused.value.what
    assert refused.value.data == "nothing was read or written"
    assert refused.value.hint


def test_sessions_need_their_microseconds() -> None:
    """Sessions of two keys may begin at the same microsecond and end at another."""
    with pytest.raises(Refused, match="gives two files the name"):
        checked(pipeline("without_pane", Session(timedelta(minutes=1))))


def test_names_are_one_way_to_name_a_file() -> None:
    with pytest.raises(Refused, match="not of the form"):
        FileSink(names="by_day")
    with pytest.raises(Refused, match="two ways to name"):
        FileSink(names="a:b", prefix="p")


def test_changed_function_names_the_files_of_the_next_batch() -> None:
    """The function's text is part of the declaration, and its change needs nothing."""
    declared = pipeline("by_day")
    template = replace(declared, outputs=replace(declared.outputs[0], sink=FileSink()))
    plans = [load.parts(one, "mine") for one in (declared, pipeline("without_day"), template)]

    for other in plans[1:]:
        [change] = changes("mine", plans[0], other)
        assert (change.part, change.need) == ("names of output mine", Need.NOTHING)
    assert changes("mine", plans[0], plans[0]) == []
