"""Records of CSV over several lines on Spark: taken in, traced, corrected and erased as what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.database.connect import Database
from onlyonce.operate import forget
from onlyonce.records import trace as tracing
from onlyonce.sources import line_reader, listing
from onlyonce.sources.record_id import asked
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

HEADER = 'id,shop,at,"cents",weight\r\n'
NOTE = 'a\nghost,b,2026-01-01T00:00:00Z,99,1\r\nlast "line"'
GOOD = [("one", NOTE), ("two", "plain"), ("three", "secret\nvalue"), ("four", "x\n\ny"), ("five", "")]
STRAY = 'six,"stray,2026-01-01T00:00:00Z,1,1\n'
BROKEN = 'seven,"c\nd",2026-01-01T00:00:00Z,many,1'


def record(name: str, note: str) -> str:
    """One record as a program writes it."""
    quoted = note.replace('"', '""')
    return f'{name},"{quoted}",2026-01-01T00:00:00Z,7,0.5\n'


def notes(platform: Platform, suffix: str = "") -> dict[str, str]:
    """The kept records, by name."""
    events = platform.events("shop" + suffix)
    kept = events[events["oo_kind"] == "kept"]
    return dict(zip(kept["id"], kept["shop"], strict=True))


def invalid(platform: Platform, suffix: str = "") -> list[str]:
    """The invalid records as they came."""
    return sorted(platform.events("shop" + suffix)["oo_raw"].dropna())


@pytest.mark.parametrize("declared", ["csv_shop", pytest.param("semicolon_shop", marks=pytest.mark.whole)])
def test_records_over_several_lines(
    declared: str, new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Read in parts, a record is one, at its first byte; a stray quote swallows nothing; an erasure takes the whole of
    it, and no other."""
    for module in (listing, line_reader):
        monkeypatch.setattr(module, "RANGE", 50)
    platform = new_platform(f"tests/support/{declared}.py")
    swap = str.maketrans(",", ";" if declared == "semicolon_shop" else ",")
    good = [(name, note.translate(swap)) for name, note in GOOD]
    header, stray, broken = (one.translate(swap) for one in (HEADER, STRAY, BROKEN))
    records = [record(*one).translate(swap) for one in GOOD]
    content = header + records[0] + stray + "".join(records[1:]) + broken
    path = platform.put("shop", "a.csv", [])
    path.write_bytes(content.encode())

    platform.run("shop", "--close")

    assert notes(platform) == dict(good)
    assert invalid(platform) == sorted([stray.removesuffix("\n"), broken])
    conserved = platform.sql("SELECT records_in, conserved FROM onlyonce.conservation WHERE query = 'receive'")
    assert (conserved["records_in"].sum(), conserved["conserved"].all()) == (7, True)
    for found, seen in ((records[3], True), ("ghost", False)):
        assert traced(path, content.index(found)) is seen

    path.with_name("corrected.csv").write_bytes((header + invalid(platform)[0].replace("many", "8")).encode())
    platform.run("shop", "--close")
    assert notes(platform) == dict(good) | {"seven": "c\nd"}

    platform.end_sessions()
    report = forget.main(["shop", "--where", "shop = 'secret\nvalue'", "--yes", "--master", "local[2]"])
    assert report.facts["kept"] == 1
    before, _, after = content.partition(records[2])
    blanked = "".join(one if one == '"' else " " for one in records[2].removesuffix("\n"))
    assert path.read_bytes() == f"{before}{blanked}\n{after}".encode()
    platform.run("shop", "--bounded")
    assert notes(platform, "@1") == dict(one for one in good if one[0] != "three") | {"seven": "c\nd"}
    assert len(invalid(platform, "@1")) == 3


def traced(path: Path, byte: int) -> bool:
    """Whether a record begins at a byte."""
    pipeline = declarations.load()["shop"]
    database = Database(settings.database_url())
    return tracing.trace(database, pipeline, "shop", asked(pipeline, [str(path), str(byte)]))[1]
