"""A home of each format, moved to another folder, is finished by this version with the oracle's result."""

from __future__ import annotations

import json
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.operate import audit
from onlyonce.sinks.outbox import deliver
from onlyonce.sources import discovery
from onlyonce.tables import opening
from tests.homes.frozen import HOMES
from tests.homes.make import client_environment
from tests.homes.oracle import Rows, rows
from tests.support.endpoints import Endpoint
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

MOVED = {"shop": "moved", "ids": "moved", "places": "moved", "log": "another"}
"""What a person says of each inbox in the new folder. A copy of a growing file is read again."""
REAL = 700
"""PostgreSQL's number of the type."""
SUMS = ("window_start", "window_end", "shop", "sales", "cents")
FATES = "SELECT pipeline, sum(kept)::int AS kept, sum(invalid)::int AS invalid, sum(expired)::int AS expired FROM onlyonce.batches WHERE query = 'receive' GROUP BY 1"


def opened(platform: Platform, home: Path) -> dict[str, Any]:
    """Restore a home into a platform's folder and empty database; return what must come of it."""
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    for command, name in (
        (["tar", "-C", str(platform.home), "-xf", "-"], "home.tar.xz"),
        (["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1"], "log.sql.xz"),
    ):
        content = lzma.decompress((home / name).read_bytes())
        done = subprocess.run(command, input=content, env=client_environment(url), capture_output=True)
        assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((home / "expected.json").read_text())
    return found


def finish(platform: Platform, later: dict[str, list[str]]) -> None:
    """Put the later input, and run each pipeline to the end of its input."""
    for pipeline, said in MOVED.items():
        discovery.look_at_inbox(declarations.load()[pipeline], said)  # type: ignore[arg-type]
    for name, lines in later.items():
        with (platform.home / "inbox" / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
    for pipeline in MOVED:
        platform.run(pipeline, "--close")


def of_table(name: str) -> Rows:
    """Return the rows of a Delta table as the oracle has them."""
    return _rows(opening.table(settings.tables_location() / name).to_pyarrow_table().to_pylist())


def of_sql(platform: Platform, name: str) -> Rows:
    """Return the rows of a PostgreSQL table as the oracle has them."""
    with psycopg2.connect(platform.environment["ONLYONCE_DATABASE_URL"].replace("+psycopg2", "")) as session:
        cursor = session.cursor()
        cursor.execute(f"SELECT * FROM {name}")
        columns: Any = cursor.description or []
        found = [zip(columns, row, strict=True) for row in cursor.fetchall()]
    return _rows([{column.name: _exact(column.type_code, value) for column, value in row} for row in found])


def _exact(kind: int, value: Any) -> Any:
    """Return the value of a PostgreSQL `real` itself: its driver reads the shortest decimal number as a double."""
    return float(np.float32(value)) if kind == REAL else value


def _rows(found: list[dict[str, Any]]) -> Rows:
    names = list(found[0])
    sums = [name for name in SUMS if name in names]
    chosen = sums if "sales" in sums else [name for name in names if not name.startswith("oo_")]
    return rows([row[name] for name in chosen] for row in found)


@pytest.mark.parametrize("home", sorted(HOMES.glob("[0-9]*")), ids=lambda home: f"format {home.name}")
def test_home_of_each_format_is_finished(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """A begun receive batch with one of its units, begun outputs with staged rows, open windows, rows of the outbox, half
    a line, ids of every type. What was written or sent before is not written again."""
    platform = new_platform("tests/homes/pipelines.py")
    expected = opened(platform, home)
    with Endpoint() as endpoint:
        platform.give(monkeypatch, TEST_ENDPOINT=endpoint.url)
        finish(platform, expected["later"])
        deliver.main(["log"])

    for name, wanted in expected["tables"].items():
        assert of_table(name) == wanted, name
    for name, wanted in expected["sql"].items():
        assert of_sql(platform, name) == wanted, name
    assert rows([b["id"], b["shop"], b["at"], b["cents"]] for b in endpoint.effects) == expected["sent"]
    fates = platform.sql(FATES).set_index("pipeline")
    assert fates["kept"].to_dict() == expected["kept"]
    assert fates["invalid"].sum() == expected["invalid"]
    assert fates["expired"].sum() == expected["expired"]
    assert platform.sql("SELECT count(*)::int AS n FROM onlyonce.rejected")["n"][0] == expected["rejected"]
    late = platform.sql("SELECT sum(late)::int AS n FROM onlyonce.late WHERE output = 'per_shop'")
    assert late["n"][0] == expected["late"]
    platform.backfill("shop", "--output", "per_shop", "--from", "2025-12-31", "--to", "2026-01-02")
    assert of_table("shop/per_shop") == expected["backfilled"]
    assert audit.main(["--data"]).warnings == []
