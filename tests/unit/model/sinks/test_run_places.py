"""The places of bounded runs and the names of files, as they are derived from declared ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import onlyonce
from onlyonce.api.outputs import Output
from onlyonce.api.sinks import Delta, FileSink, Sink
from onlyonce.core import shards
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import FOLDER, Place
from onlyonce.core.shards import Shard

DECLARED = (
    "delta:orders", "delta:orders/", "delta:a/orders//", "delta:/mnt/lake/orders/", "delta:s3://bucket/orders/", "files:out/", "files:s3://bucket/out/?region=x",
    f"delta:{'x' * 255}", f"files:a/{'é' * 127}/", "postgres::results.orders", "mysql:THERE:orders", "iceberg:lake:sales.orders",
)  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED)
def test_no_run_is_inside_the_place_of_another(declared: str) -> None:
    """However a path is written: a VACUUM of the stream's table would remove what is inside it.

    No name is longer than a file system takes.
    """
    places = [Place(declared).of_run(suffix).where.partition("?")[0] for suffix in ("", "@1", "@2", "@10")]
    assert len(set(places)) == len(places)
    assert not [one for one in places for other in places if one != other and one.startswith(f"{other.rstrip('/')}/")]
    assert all(FOLDER.size(part) <= FOLDER.most for place in places for part in place.split("/"))
    assert Place(declared).of_run("@1").text.partition("?")[2] == declared.partition("?")[2]


def test_derived_names_are_made_in_one_module() -> None:
    """Only `ownership` adds to the name of a table, and only `Place.of_run` the suffix of a run."""
    package = Path(onlyonce.__file__).parent
    added = re.compile(
        r"\+ (\w+\.)*(target_suffix\(|_suffix\b|suffix_of\()|\}_(deleted|by_window)\b|\+ ['\"]_(deleted|by_window)"
        r"|(DELETED|BY_WINDOW)_SUFFIX\b(?! =)"
    )
    assert [path.name for path in package.rglob("*.py") if added.search(path.read_text())] == ["ownership.py"]


def test_a_file_name_that_could_be_too_long_is_refused() -> None:
    """Before any row: a file that can't get its final name is never seen by a reader."""
    rest = len("-99991231T235959.999999Z-99991231T235959.999999Z-pane-1000000000-10000-of-10000.jsonl")
    Output(name="each", transform="m:f", sink=FileSink(prefix="x" * (255 - rest)))
    for sink in (
        FileSink(prefix="x" * (256 - rest)),
        FileSink(naming="{prefix}-{window_start}/{window_end}-{pane}-{shard}", prefix="x" * 240),
    ):
        with pytest.raises(Refused, match="output each: a file could have the name"):
            Output(name="each", transform="m:f", sink=sink)


@pytest.mark.parametrize("sink", [FileSink, Delta])
def test_a_folder_that_no_file_system_has_is_refused(sink: Callable[..., Sink]) -> None:
    """Each part of a path has a limit of its own, in bytes."""
    sink(path="/".join(["x" * 255] * 3))
    with pytest.raises(Refused, match="longer than 255 bytes"):
        sink(path=f"a/{'é' * 128}/b")


def test_a_year_has_four_digits_in_a_file_name() -> None:
    """Names are in the order of their windows."""
    times = [datetime(year, 1, 2, tzinfo=UTC) for year in (1, 999, 2026)]
    found = [
        shards.name("{window_start}-{window_end}-{pane}-{shard}", "p", "x", Shard(time, time, 0, 1)).split("-")[0]
        for time in times
    ]
    assert found == ["00010102T000000Z", "09990102T000000Z", "20260102T000000Z"]
