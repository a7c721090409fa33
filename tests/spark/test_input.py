"""Bad input becomes `invalid` with its reason, or is refused; the run goes on and nothing else is lost."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import pytest

from tests.support.platform import Platform

pytestmark = pytest.mark.spark

GOOD = {"id": "good", "shop": "a", "at": "2026-01-01T00:00:00Z", "cents": 1, "weight": 1.0}


def record(**values: Any) -> str:
    """A good line with other values; None leaves the field out."""
    changed = {k: v for k, v in (GOOD | values).items() if v is not None}
    return json.dumps(changed, separators=(",", ":"))


# line → the reason that it must have; None: kept.
LINES: dict[str, tuple[str, str | None]] = {
    "good": (record(), None),
    "does not parse": ("{", "no JSON object"),
    "not an object": ("[1,2]", "no JSON object"),
    "a number": ("17", "no JSON object"),
    "null": ("null", "no JSON object"),
    "blank": ("   ", "blank"),
    "empty object": ("{}", "record id column id is missing"),
    "id missing": (record(id=None, shop="b"), "record id column id is missing"),
    "event time missing": (record(id="e1", at=None), "event time at is missing"),
    "event time no time": (record(id="e2", at="yesterday-ish"), "no JSON object of the declared types"),
    "year 9999": (record(id="e3", at="9999-12-31T00:00:00Z"), "ahead of the system time"),
    "wrong type": (record(id="t1", cents="many"), "no JSON object of the declared types"),
    "fraction for a whole number": (record(id="t2", cents=1.5), "no JSON object of the declared types"),
    "number out of range": (record(id="t3", cents=10**30), "no JSON object of the declared types"),
    "year 1": (record(id="y1", at="0001-01-01T00:00:00Z"), "before the year 2"),
    "without a zone": (record(id="z1", at="2026-01-01T00:00:00"), None),
    "with another zone": (record(id="z2", at="2026-01-01T02:00:00+02:00"), None),
    "unknown field": (record(id="u1", colour="red"), None),
    "unknown field with spaces": ('{"id" : "u2", "at":"2026-01-01T00:00:00Z", "x":1}', None),
    "windows line end": (record(id="crlf") + "\r", None),
    "emoji": (record(id="🛒 \u2028", shop='"quoted"'), None),
}


def test_each_line_has_the_fate_that_is_stated(platform: Platform, spark: object) -> None:
    """Every kind of bad line is invalid with its reason and raw content; the good ones beside them are kept."""
    platform.put("shop", "lines.jsonl", [line for line, _ in LINES.values()])

    platform.run("shop", "--close")

    events = platform.events()
    invalid = events[events["oo_kind"] == "invalid"]
    wanted = Counter(line for line, reason in LINES.values() if reason)
    assert wanted == Counter(invalid["oo_raw"])
    reasons = dict(zip(invalid["oo_raw"], invalid["oo_reason"], strict=True))
    for name, (line, reason) in LINES.items():
        if reason:
            assert reason in reasons[line], name
    kept = events[events["oo_kind"] == "kept"]
    assert len(kept) == len(LINES) - sum(wanted.values())
    assert set(kept[kept["oo_unknown"].notna()]["id"]) == {"u1", "u2"}
    batch = platform.sql("SELECT \"in\", kept, invalid, unknown_fields FROM onlyonce.batches WHERE query = 'receive'")
    assert batch.iloc[0].tolist() == [len(LINES), len(kept), sum(wanted.values()), 2]


def test_a_time_in_the_far_future_does_not_move_the_tide(platform: Platform, spark: object) -> None:
    """The year 9999 is invalid and closes no window."""
    platform.put("shop", "a.jsonl", [record(id="far", at="9999-12-31T00:00:00Z"), record()])

    platform.run("shop")

    tide = platform.sql("SELECT max(tide_after) AS tide FROM onlyonce.batches")["tide"][0]
    assert tide.year == 2026
    assert platform.sql("SELECT * FROM onlyonce.windows WHERE state = 'closed'").empty


def test_a_replaced_file_is_refused_and_the_others_go_on(platform: Platform, spark: object) -> None:
    """A file replaced under its old name is one invalid entry, said once; files beside it are read."""
    platform.put("shop", "a.jsonl", [record()])
    platform.run("shop")
    platform.put("shop", "a.jsonl", [record(id="other"), record(id="more")])
    platform.put("shop", "b.jsonl", [record(id="beside")])

    platform.run("shop")
    again = platform.run("shop")

    events = platform.events()
    invalid = events[events["oo_kind"] == "invalid"]
    assert sorted(events[events["oo_kind"] == "kept"]["id"]) == ["beside", "good"]
    assert len(invalid) == 1
    assert "replaced under its old name" in invalid.iloc[0]["oo_reason"]
    assert invalid.iloc[0]["oo_raw"].endswith("a.jsonl")
    assert again.facts["batches"] == 0


def test_odd_names_and_files_are_read_or_left_alone(platform: Platform, spark: object) -> None:
    """Names are taken literally; hidden ones are left alone; an empty file and one without a last newline are read."""
    folder = platform.put("shop", "with space [1]*{a}.jsonl", [record(id="odd")]).parent
    platform.put("shop", "ü🛒%20.jsonl", [record(id="emoji")])
    (folder / "no-newline.jsonl").write_text(record(id="last") + "\n" + record(id="cut"))
    (folder / "empty.jsonl").write_text("")
    (folder / ".hidden.jsonl").write_text("{")
    (folder / "_temporary.jsonl").write_text("{")
    os.mkfifo(folder / "pipe")

    platform.run("shop")

    events = platform.events()
    assert sorted(events[events["oo_kind"] == "kept"]["id"]) == ["cut", "emoji", "last", "odd"]
    assert len(list(folder.iterdir())) == 7


def test_invalid_bytes_are_invalid_lines(platform: Platform, spark: object) -> None:
    """A line that is not UTF-8 is invalid; its neighbours are kept."""
    folder = platform.put("shop", "a.jsonl", [record()]).parent
    (folder / "b.jsonl").write_bytes(b'{"id":"\xff\xfe"}\n' + record(id="next").encode() + b"\n")

    platform.run("shop")

    events = platform.events()
    assert sorted(events[events["oo_kind"] == "kept"]["id"]) == ["good", "next"]
    assert events[events["oo_kind"] == "invalid"]["oo_reason"].tolist() == ["the line is not UTF-8; its bytes are in hexadecimal"]
