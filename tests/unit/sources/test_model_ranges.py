"""Sources that are read in ranges: what can't work is refused when it is declared, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark import cloudpickle

from onlyonce.api.identity import receive_parts
from onlyonce.api.load import fingerprint
from onlyonce.api.pipeline import Custom, Files, Growing
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.sources import custom
from onlyonce.sources.growing import Known
from tests.support.shop import SHOP

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "format": (lambda: Growing(format="parquet"), "'json', 'csv'|json, csv"),  # type: ignore[arg-type]
    "bytes": (lambda: Growing(max_bytes_a_batch=0), "at least 1"),
    "files": (lambda: Growing(max_files_a_batch=0), "at least 1"),
    "start": (lambda: Growing(start="last"), "'earliest' or 'latest'"),  # type: ignore[arg-type]
    "start without a zone": (lambda: Files(start=datetime(2026, 1, 1)), "tzinfo=UTC"),
    "a time of numbers": (lambda: Custom(reader="a:B", needs_dedup=False, start=datetime(2026, 1, 1, tzinfo=UTC)), "'latest'"),  # type: ignore[arg-type]
    "misspelt": (lambda: Growing(max_bytes=1), "max_bytes_a_batch"),  # type: ignore[call-arg]
    "reader": (lambda: Custom(reader="a.B", needs_dedup=False), "module:Class"),
    "not said": (lambda: Custom(reader="a:B"), "needs_dedup"),  # type: ignore[call-arg]
    "no bool": (lambda: Custom(reader="a:B", needs_dedup="no"), "True or False"),  # type: ignore[arg-type]
    "no records": (lambda: Custom(reader="a:B", needs_dedup=False, max_records_a_batch=0), "at least 1"),
    "dedup without ids": (
        lambda: replace(SHOP, source=Custom(reader="a:B", needs_dedup=True), record_id=()), "name the columns|needs_dedup=False",
    ),
    "nested csv": (lambda: replace(SHOP, source=Growing(format="csv"), schema=SHOP.schema + ", x array<int>"), "string"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(name: str) -> None:
    """When it is declared, so when the file with the declarations is loaded."""
    make, hint = REFUSED[name]
    with pytest.raises(Refused) as refused:
        make()
    assert any(part in str(refused.value) for part in hint.split("|"))


def test_what_can_work_is_taken() -> None:
    """By ids and by position; a source that needs dedup with its ids."""
    for source in (Growing(), Growing(compressed=True, start="latest"), Custom(reader="a:B", needs_dedup=False)):
        for ids in ((), ("id",)):
            assert replace(SHOP, source=source, record_id=ids).source == source
    assert replace(SHOP, source=Custom(reader="a:B", needs_dedup=True)).source.format == "columns"


def test_a_start_is_no_change_and_another_kind_of_source_is_another_pipeline() -> None:
    """Where a source starts was decided by the first run; what was counted one way is not counted another."""
    later = replace(SHOP, source=Files(max_files_a_batch=1, start="latest"))
    assert fingerprint(later, "receive") == fingerprint(SHOP, "receive")
    assert changes("receive", receive_parts(SHOP), receive_parts(later)) == []
    grown = replace(SHOP, source=Growing())
    needs = {(c.part, c.need) for c in changes("receive", receive_parts(SHOP), receive_parts(grown))}
    assert ("format", Need.NAME) in needs


class Ends:
    """A reader that tells what it is made with."""

    def __init__(self, **ends: Any) -> None:
        self.told = ends

    def ends(self) -> dict[str, Any]:
        """How far its parts reach."""
        return self.told


def ranges(most: int, known: dict[str, int], **told: Any) -> list[list[tuple[str, int, int]]]:
    """What a listing would store, by batch."""
    source = Custom(reader=f"{__name__}:Ends", needs_dedup=False, options=told, max_records_a_batch=most)
    found = custom.new_ranges(source, {part: Known(end, "") for part, end in known.items()})
    return [[(one.path, one.begins, one.ends) for one in group] for group in custom.batched(found, source)]


def test_a_batch_has_so_many_records_and_each_number_is_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of parts that come later, of empty ones, and from where they were read last."""
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").SimpleNamespace(Ends=Ends))
    monkeypatch.setattr(cloudpickle, "register_pickle_by_value", lambda module: None)
    assert ranges(10, {}, a=25, b=0, c=3) == [[("a", 0, 10)], [("a", 10, 20)], [("a", 20, 25), ("c", 0, 3)]]
    assert ranges(100, {"a": 20, "b": 1}, a=25, b=1, c=3) == [[("a", 20, 25), ("c", 0, 3)]]
    assert ranges(100, {"a": 25}, a=25) == []
    with pytest.raises(Refused, match="ends at 24, but was read up to 25"):
        ranges(100, {"a": 25}, a=24)
    for wrong in (-1, 1.5, True, "7", None):
        with pytest.raises(Refused, match="for the part 'a'"):
            ranges(100, {}, a=wrong)
    with pytest.raises(Refused, match="for the part ''"):
        ranges(100, {}, **{"": 3})
    with pytest.raises(Refused, match="does not exist"):
        custom.ends(Custom(reader="tests.support.nowhere:Nothing", needs_dedup=False))
