"""Bad lines become `invalid` with their reason and raw content, or how they begin; the run goes on and nothing else is
lost."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from onlyonce.core import records
from onlyonce.records import left_out
from tests.support.bad_input import LINES, kept, record
from tests.support.platform import Platform
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark


def test_each_line_has_the_fate_that_is_stated(new_platform: Callable[..., Platform], spark: object) -> None:
    """Every kind of bad line is invalid with its reason and raw content (of one that is too large, how it begins); each
    good one beside them is kept with its event time and reaches the sink, and no other; the max event time is that of what is
    kept; a second run does nothing."""
    platform = new_platform("tests/support/plain.py")
    platform.put("plain", "lines.jsonl", [])
    raw = b"".join(line.raw + b"\n" for line in LINES.values())
    inbox = platform.home / "inbox" / "plain"
    (inbox / "lines.jsonl").write_bytes(raw)
    very_long(inbox / "long.jsonl.gz")

    platform.run("plain", "--close")
    again = platform.run("plain", "--close")

    good = {name: line for name, line in LINES.items() if line.reason is None}
    good |= {"beside": kept(record("beside a long line"), "beside a long line")}
    events = platform.events("plain")
    assert _invalid(events) == Counter(
        [*((_stored(line.raw), True) for line in LINES.values() if line.reason), ("{" * 1024, True)]
    )
    assert Counter(events[events["oo_kind"] == "invalid"]["oo_place"]) == Counter(
        [*_places(inbox / "lines.jsonl"), f"{inbox}/long.jsonl.gz, byte 0 of its content"]
    )
    assert events[events["oo_kind"] == "kept"]["oo_place"].isna().all()
    _, shown = left_out.invalid(SHOP, "plain", 1000)
    assert sorted(row["place"] for row in shown) == sorted(events["oo_place"].dropna())
    times = Counter((line.id, line.at) for line in good.values())
    there = events[events["oo_kind"] == "kept"]
    assert Counter(zip(there["id"], there["at"].map(lambda t: t.to_pydatetime()), strict=True)) == times
    sunk = platform.sql("SELECT id, at FROM results.rows")
    assert Counter(zip(sunk["id"], sunk["at"].map(lambda t: t.to_pydatetime()), strict=True)) == times
    fates = platform.sql(
        "SELECT records_in, kept, invalid, max_event_time_after FROM onlyonce.batches WHERE query = 'receive'"
    ).iloc[0]
    assert fates.tolist()[:3] == [len(LINES) + 2, len(good), len(LINES) + 2 - len(good)]
    assert fates["max_event_time_after"] == max(line.at for line in good.values())
    assert again.facts["batches"] == 0


def very_long(path: Path) -> None:
    """A line of 300 MB in 300 kB, and a good one."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(300):
            file.write(b"{" * (1 << 20))
        file.write(b"\n" + record("beside a long line") + b"\n")


def _places(path: Path) -> list[str]:
    begins = accumulate((len(line.raw) + 1 for line in LINES.values()), initial=0)
    return [f"{path}, byte {at}" for line, at in zip(LINES.values(), begins, strict=False) if line.reason]


def _stored(raw: bytes) -> str:
    raw = raw if len(raw) <= records.DEFAULT else records.beginning_of_record(raw)
    # A byte-order mark is no part of the line; what is no text is kept in hexadecimal.
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        return raw.hex().upper()


def _invalid(events: Any) -> Counter[Any]:
    # (raw, whether the reason is the stated one).
    reasons = {_stored(line.raw): line.reason for line in LINES.values() if line.reason}
    reasons["{" * 1024] = f"long.jsonl.gz has {300 << 20} bytes, and max_record_bytes is"
    rows = events[events["oo_kind"] == "invalid"]
    return Counter(
        (raw, str(reasons.get(raw)) in reason) for raw, reason in zip(rows["oo_raw"], rows["oo_reason"], strict=True)
    )
