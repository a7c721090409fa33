"""The input of a home, and what must come of it: plain Python, no product code."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.support import shop_oracle

Lines = list[str]
Rows = list[list[str | None]]
MINUTE = timedelta(minutes=1)
GAP = timedelta(seconds=20.5)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHORTEST_FLOAT = struct.unpack("f", struct.pack("f", 0.1))[0]
IDS: list[tuple[list[str], list[Any]]] = [
    (
        ['"a\\u00e9"', "true", "-7", "-7", "-7", "1152921504606846976", "0.1", "0.1", "1.5", "1e-18", '"0001-01-01"',
         '"2026-03-01T12:00:00.120+02:00"', '"2026-03-01T12:00:00.000001"', '"AAH/"'],
        ["a\u00e9", True, -7, -7, -7, 2**60, SHORTEST_FLOAT, 0.1, Decimal("1.50"), Decimal("1e-18"), date(1, 1, 1),
         datetime(2026, 3, 1, 10, 0, 0, 120000, UTC), datetime(2026, 3, 1, 12, 0, 0, 1), b"\x00\x01\xff"],
    ),
    (
        ['"007"', "false", "0", "0", "0", "0", "2.5e3", "2e22", "12e3", "0", '"2026-03-01"',
         '"2026-03-01T00:00:00Z"', '"2026-03-01T00:00:00"', '""'],
        ["007", False, 0, 0, 0, 0, 2500.0, 2e22, Decimal("12000.00"), Decimal(0), date(2026, 3, 1),
         datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1), b""],
    ),
    (
        ['""', "true", "127", "32767", "2147483647", "-1", "1", "1", "-2.25", "-2", '"9999-12-31"',
         '"1969-12-31T23:59:59.999999Z"', '"1969-12-31T23:59:59"', '"b25seW9uY2U="'],
        ["", True, 127, 32767, 2**31 - 1, -1, 1.0, 1.0, Decimal("-2.25"), Decimal(-2), date(9999, 12, 31),
         datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1969, 12, 31, 23, 59, 59), b"onlyonce"],
    ),
]  # fmt: skip
"""The values of each record: as its line has them, and what they are."""


def plain(value: Any) -> str | None:
    """Return a value as a string that is equal only for equal values."""
    if value is None:
        return None
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat()
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    return value.hex() if isinstance(value, float) else str(value)


def rows(of: Iterable[Iterable[Any]]) -> Rows:
    """Return rows of such strings, in order."""
    return sorted(([plain(value) for value in row] for row in of), key=str)


def lines(records: list[dict[str, Any]]) -> Lines:
    """Return the lines of records."""
    return [json.dumps(record) for record in records]


def sale(name: str, minutes: float, cents: int = 100, shop: str = "a") -> dict[str, Any]:
    """Return a sale so many minutes after noon."""
    at = (NOON + timedelta(minutes=minutes)).isoformat()
    return {"id": name, "shop": shop, "at": at, "cents": cents, "weight": 1.5}


SALES = shop_oracle.sales(120, 4, duplicates=0.2)
EXPIRED = [sale(f"old-{number}", -600) for number in range(4)]
BROKEN = ['{"id": "broken"', json.dumps({"shop": "a", "at": NOON.isoformat()})]
LOG = [
    [sale(f"first-{number}", number / 4, number, "ab"[number % 2]) for number in range(8)],
    [sale(f"second-{number}", 60 + number / 4, number, "ab"[number % 2]) for number in range(9)],
    [sale(f"third-{number}", 120 + number / 4, number, "ab"[number % 2]) for number in range(4)],
]
PLACES = [[sale("twice", 0), sale("twice", 0), sale("once", 1)], [sale("twice", 0), sale("later", 2)]]


def _ids(number: int) -> str:
    from tests.homes.pipelines import IDS as columns

    values = zip([*columns, "at"], [*IDS[number][0], json.dumps(NOON.isoformat())], strict=True)
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values) + "}"


HALF = len(lines(LOG[1])[-1]) // 2
"""How much of the last line of a log is there when a run reads it."""
PUT: dict[str, Lines] = {
    "shop/0.jsonl": lines(SALES[0]),
    "shop/1.jsonl": [*lines(SALES[1]), *BROKEN],
    "shop/2.jsonl": lines(EXPIRED),
    "shop/3.jsonl": lines(SALES[2]),
    "shop/4.jsonl": lines(SALES[3]),
    "ids/0.jsonl": [_ids(0), _ids(1)],
    "ids/1.jsonl": [_ids(1), _ids(2)],
    "places/0.jsonl": lines(PLACES[0]),
}
"""The files that the home has."""
LATER: dict[str, Lines] = {
    "ids/2.jsonl": [_ids(0), _ids(1), _ids(2)],
    "log/app.log": [lines(LOG[1])[-1][HALF:], *lines(LOG[2])],
    "places/1.jsonl": lines(PLACES[1]),
}
"""What is put, or appended to a file, after the home was opened by a later version."""


def expected() -> dict[str, Any]:
    """Return the rows of each table, what the endpoint gets then, and the records of each fate."""
    in_time, late = _shop()
    log = [record for part in LOG for record in part]
    ids = [values for _, values in IDS]
    return {
        "tables": {
            "shop/per_shop": _sums(_by_shop(in_time, MINUTE)),
            "shop/visits": _sums(_sessions()),
            "shop/sliding": _sums(_sliding()),
            "ids/plain": rows(ids),
            "log/per_minute": _sums(_by_shop(log, MINUTE)),
            "places/each": rows([r["id"], r["shop"], r["cents"]] for part in PLACES for r in part),
        },
        "sql": {
            "results.total": _sums(_by_shop([r | {"shop": "all"} for r in in_time], MINUTE), shop=False),
            "results.balance": rows([shop, *_sum(of)] for shop, of in _grouped(in_time, "shop").items()),
            "results.sound": rows([r["id"], r["shop"], r["cents"]] for r in in_time + late if r["cents"] % 7),
            "results.staged": rows(ids),
        },
        "sent before": sorted(r["id"] for r in LOG[0]),
        "sent": rows(
            [r["id"], r["shop"], _at(r).strftime("%Y-%m-%d %H:%M:%S"), r["cents"]] for part in LOG[1:] for r in part
        ),
        "kept": {
            "shop": len(in_time + late), "ids": len(IDS), "log": len(log), "places": sum(map(len, PLACES)),
        },
        "invalid": len(BROKEN),
        "expired": len(EXPIRED),
        "late": len(late),
        "rejected": len([r for r in in_time + late if not r["cents"] % 7]),
        "backfilled": _sums(_by_shop(in_time + late, MINUTE)),
    }  # fmt: skip


def _shop() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the sales that are in time for their minute, and the late ones."""
    records = shop_oracle.distinct(SALES).to_dict("records")
    return [r for r in records if not r["late"]], [r for r in records if r["late"]]


def _at(record: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(record["at"])


def _grouped(records: list[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        found[record[key]].append(record)
    return found


def _sum(records: list[dict[str, Any]]) -> tuple[int, int]:
    return len(records), sum(record["cents"] for record in records)


Windows = dict[tuple[datetime, datetime, str], list[dict[str, Any]]]


def _sums(windows: Windows, *, shop: bool = True) -> Rows:
    return rows([start, end, *([name] if shop else []), *_sum(of)] for (start, end, name), of in windows.items())


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _by_shop(records: list[dict[str, Any]], length: timedelta) -> Windows:
    found: Windows = defaultdict(list)
    for record in records:
        start = _floor(_at(record))
        found[start, start + length, record["shop"]].append(record)
    return found


def _closed(record: dict[str, Any]) -> datetime:
    """Return up to where windows were closed when a sale came."""
    reached = record["max_event_time"]
    return datetime.min.replace(tzinfo=UTC) if reached is None or reached != reached else reached - MINUTE


def _sliding() -> Windows:
    found: Windows = defaultdict(list)
    for record in shop_oracle.distinct(SALES).to_dict("records"):
        for start in (_floor(_at(record)) - MINUTE, _floor(_at(record))):
            if start + 2 * MINUTE > _closed(record):
                found[start, start + 2 * MINUTE, record["shop"]].append(record)
    return found


def _sessions() -> Windows:
    found: Windows = {}
    in_time = [r for r in shop_oracle.distinct(SALES).to_dict("records") if _at(r) > _closed(r)]
    for shop, records in _grouped(in_time, "shop").items():
        session: list[dict[str, Any]] = []
        for record in sorted(records, key=_at):
            if session and _at(record) - _at(session[-1]) > GAP:
                found[_at(session[0]), _at(session[-1]) + GAP, shop] = session
                session = []
            session.append(record)
        found[_at(session[0]), _at(session[-1]) + GAP, shop] = session
    return found
