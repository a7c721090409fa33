"""Names of sharded files, and which temporaries may go."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from onlyonce.api.identity import output_parts
from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline
from onlyonce.core import shards
from onlyonce.core.changes import changes
from onlyonce.core.errors import Refused
from onlyonce.core.shards import Shard, Standing, Temporary
from onlyonce.core.windows import Fixed

NINE, TEN = datetime(2026, 3, 1, 9, tzinfo=UTC), datetime(2026, 3, 1, 10, tzinfo=UTC)
MINE = Temporary(7, 3, "per_user", 0, 2, "0" * 32)


def output(**options: Any) -> Output:
    """An output with a file sink."""
    given = {"name": "mine", "transform": "a:b", "window": Fixed(TEN - NINE), "sink": FileSink()}
    return Output(**given | options)  # type: ignore[arg-type]


def test_a_name_says_window_pane_and_shard() -> None:
    """The default naming, and one with folders."""
    one = Shard(NINE, TEN, 3, 10)
    default = "per_user-20260301T090000Z-20260301T100000Z-pane-{pane}-00003-of-00010.jsonl"
    own = FileSink(
        naming="day={window_start}/{prefix}.{window_end}.{pane}.{shard}.{ext}", prefix="p", extension="ndjson"
    )

    assert FileSink().name("per_user", one) == default
    assert own.name("per_user", one) == "day=20260301T090000Z/p.20260301T100000Z.{pane}.00003.ndjson"
    assert (
        FileSink(format="csv").name("all", Shard(None, None, 0, 1))
        == "all-global-global-pane-{pane}-00000-of-00001.csv"
    )


def test_two_shards_never_have_one_name() -> None:
    """Over windows a microsecond apart, panes and shards."""
    times = [NINE, NINE.replace(microsecond=1), NINE.replace(second=1), TEN]
    names = [
        FileSink().name("a", Shard(start, end, shard, 10)).replace(shards.PANE, str(pane))
        for start, end, shard, pane in product(times, times, range(10), (0, 1, 10, 100))
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"naming": "{prefix}-{shard}"}, "lacks window_start, window_end, pane"),
        ({"naming": shards.NAMING + "{windw}"}, "'windw'"),
        ({"naming": shards.NAMING.replace("{shard}", "{shard:>9}")}, "has a format"),
        ({"naming": shards.NAMING.replace("{shard}", "{shard!r}")}, "has a format"),
        ({"naming": "../" + shards.NAMING}, "names like"),
        ({"naming": "/" + shards.NAMING}, "names like"),
        ({"naming": "a b" + shards.NAMING}, "names like"),
        ({"naming": "{{pane}}" + shards.NAMING}, "names like"),
        ({"naming": shards.NAMING + "}"}, "Single '}'"),
        ({"prefix": "_hidden"}, "names like"),
        ({"prefix": "a/.b"}, "names like"),
        ({"format": "jsonlines"}, "did you mean 'jsonl'"),
        ({"format": "mine:"}, "not of the form 'module:function'"),
        ({"format": "mine:writer"}, "needs an extension"),
        ({"shards": 0}, "shards=0"),
        ({"shard": 3}, "did you mean 'shards'"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_declared(options: dict[str, Any], says: str) -> None:
    """With the cause in its message."""
    with pytest.raises(Refused) as refused:
        FileSink(**options)
    assert says in str(refused.value)


def test_a_file_output_may_have_early_panes_and_is_always_backfilled_by_new_ones() -> None:
    """Other sinks need an upsert for early panes; a file of a pane is never replaced."""
    from onlyonce.api.outputs import what_to_do

    assert what_to_do(output(panes="early")) == "replace"
    with pytest.raises(Refused, match="resending"):
        output(on_backfill="resend")


def test_another_format_needs_another_name_and_another_folder_a_backfill() -> None:
    """What lies in a folder was written one way."""
    plans = {}
    for name, sink in {"was": FileSink(), "csv": FileSink(format="csv"), "moved": FileSink(path="other")}.items():
        pipeline = Pipeline(
            name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
            outputs=(output(sink=sink), output(name="b", sink=Delta())),
        )  # fmt: skip
        plans[name] = output_parts(pipeline, "mine", {"mine": "def b(): pass"})

    assert [c.need.value for c in changes("mine", plans["was"], plans["csv"])] == ["another name"]
    assert [c.need.value for c in changes("mine", plans["was"], plans["moved"])] == ["a backfill"]
    assert changes("mine", plans["was"], plans["was"]) == []


def test_a_temporary_tells_its_unit_and_others_are_not_ours() -> None:
    """What the sweep reads is what the task has written."""
    assert shards.read_temporary(MINE.file(12, "jsonl")) == MINE
    for other in ("notes.txt", MINE.file(1, "jsonl")[1:] + "~", "a" + MINE.file(1, "csv"), MINE.file(1, "csv").upper()):
        assert shards.read_temporary(other) != MINE


def test_a_temporary_goes_only_when_nobody_can_want_it() -> None:
    """All that the log can say of one; time is not asked."""
    for winner, settled, epoch in product((True, False), (True, False), (None, 1, 2, 3)):
        goes = shards.may_go(MINE, Standing(winner, settled, epoch))
        assert goes == (not winner and epoch is not None and (settled or epoch > MINE.epoch))


def test_a_bounded_run_has_a_place_of_its_own() -> None:
    """Its suffix is part of the folder, not of a URL's options."""
    assert FileSink().place("files:shop/mine", "@1") == "shop/mine@1"
    assert FileSink().place("files:s3://bucket/mine?region=x", "@1") == "s3://bucket/mine@1?region=x"
