"""The pipeline of the matrix: every write that a unit knows, over records that test every fate."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres, Sink
from onlyonce.core.windows import Fixed
from tests.fault.matrix.frames import schema_of

SCHEMA = "id string, shop string, at timestamp, cents long"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARTITIONS = 2
FILES = 2
Row = dict[str, Any]

PLAIN = schema_of("id string, shop string, cents long")
SHOPS = schema_of("shop string, cents long")
CHANCY = schema_of("id string, chance long")


def plain(kept: list[Row]) -> list[Row]:
    """Each record as a row."""
    return [{name: row[name] for name in PLAIN.names} for row in kept]


def by_shop(kept: list[Row]) -> list[Row]:
    """The sum of each shop in this batch: an upsert keeps the last batch's, an increment adds them."""
    sums: Counter[str] = Counter()
    for row in kept:
        sums[row["shop"]] += row["cents"]
    return [{"shop": shop, "cents": cents} for shop, cents in sorted(sums.items())]


def chancy(kept: list[Row]) -> list[Row]:
    """Other values at each call; only stable input bears it."""
    return [{"id": row["id"], "chance": random.SystemRandom().randrange(2**62)} for row in kept]


KINDS: dict[str, tuple[str, Any]] = {
    "appended": ("plain", PLAIN), "upserted": ("by_shop", SHOPS), "added": ("by_shop", SHOPS), "filed": ("plain", PLAIN),
    "staged": ("chancy", CHANCY),
}  # fmt: skip
"""The kinds of output: function and columns of the result."""


def declare(name: str, kinds: list[str], suffix: str = "", mode: Any = "exactly_once") -> Pipeline:
    """The pipeline with outputs of these kinds, each named `<kind><suffix>`; the window's only use is to let it
    close."""
    closing = Output(name="closing", transform=f"{__name__}:plain", sink=Delta(), window=Fixed(timedelta(hours=1)))
    outputs = [
        Output(
            name=kind + suffix, transform=f"{__name__}:{KINDS[kind][0]}", sink=_sink(name, kind, suffix),
            stable_input=kind == "staged",
        )
        for kind in kinds
    ]  # fmt: skip
    return Pipeline(
        name=name, source=Files(max_files_a_batch=1), schema=SCHEMA, record_id=("id",), event_time="at",
        outputs=(*outputs, closing), partitions=PARTITIONS, mode=mode,
    )  # fmt: skip


def table(name: str, kind: str, suffix: str) -> str:
    """Where a kind of output of a pipeline writes in PostgreSQL."""
    return f"results.{kind}_{name}{suffix}"


def _sink(name: str, kind: str, suffix: str) -> Sink:
    if kind == "filed":
        return Delta()
    target = table(name, kind, suffix)
    if kind == "upserted":
        return Postgres(table=target, write="upsert", keys=("shop",))
    if kind == "added":
        return Postgres(table=target, write="increment", keys=("shop",))
    return Postgres(table=target)


def files() -> list[list[Row | str]]:
    """The lines of each input file: new records, twins in a file, records of the file before, and no records at all."""
    made: list[list[Row | str]] = []
    for number in range(FILES):
        own: list[Row | str] = [_sale(number * 10 + n) for n in range(8)]
        twins = [_sale(number * 10, cents=1), _sale(number * 10 + 1, cents=2)]
        again = [_sale((number - 1) * 10 + n, cents=3) for n in range(2, 5)] if number else []
        made.append([*own, *twins, *again, f"no record {number}"])
    return made


def _sale(number: int, cents: int | None = None) -> Row:
    # A twin comes later in event time, so it is the one that goes.
    late = 0 if cents is None else 1
    return {
        "id": f"sale {number}", "shop": f"shop {number % 3}", "at": (NOON + timedelta(minutes=number, hours=late)).isoformat(),
        "cents": 100 + number if cents is None else cents,
    }  # fmt: skip


def put(folder: Path) -> None:
    """Put all files into an inbox."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(files()):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (folder / f"sales-{number}.jsonl").write_text(text)
