"""A driver without Spark for the tests of the crash test: a plain exactly-once copy of files to PostgreSQL, and broken
ones.

It passes fail-points of its own and reads the declarations that the crash test gives it. PLAIN_DRIVER says how it is
broken: `two-commits` (the rows and their mark commit apart), `shaky` (other rows each time), `stops` (a replay finds
other rows and gives up), `asks-again` (a disturbed platform's first run wants to be run again).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from uuid import uuid4

import psycopg2
import pyarrow as pa
from deltalake import write_deltalake

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing

BROKEN = os.environ.get("PLAIN_DRIVER", "")
INSERT = "INSERT INTO results.written VALUES (%s, %s, %s)"


def main(name: str) -> int:
    """Copy each file as one batch; gives the exit code."""
    passing("start")
    files = sorted(Path(str(declarations.one(name).source.inbox)).iterdir())
    migrate(settings.database_url())
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    if BROKEN == "asks-again" and "ONLYONCE_FAILPOINT_RECORD" not in os.environ and not _asked().exists():
        _asked().touch()
        return 75
    _events(name, [sale for batch in lines for sale in batch])
    session = psycopg2.connect(settings.database_url().replace("+psycopg2", ""))
    cursor = session.cursor()
    cursor.execute("CREATE SCHEMA IF NOT EXISTS results")
    cursor.execute("CREATE TABLE IF NOT EXISTS results.written (id text, weight double precision, chance text)")
    cursor.execute("CREATE TABLE IF NOT EXISTS public.done (batch int PRIMARY KEY)")
    session.commit()
    for batch, sales in enumerate(lines):
        cursor.execute("SELECT FROM public.done WHERE batch = %s", (batch,))
        if cursor.fetchone() is not None:
            continue
        if BROKEN == "stops" and (settings.home() / f"tried-{batch}").exists():
            print("unit 1 is committed with other rows", file=sys.stderr)
            return 70
        (settings.home() / f"tried-{batch}").touch()
        chance = str(uuid4()) if BROKEN == "shaky" else ""
        cursor.executemany(INSERT, [(sale["id"], sale["weight"], chance) for sale in sales])
        if BROKEN == "two-commits":
            session.commit()
        passing("batch-before-commit")
        cursor.execute("INSERT INTO public.done VALUES (%s)", (batch,))
        session.commit()
        passing("batch-after-commit")
    return 0


def _asked() -> Path:
    return settings.home() / "asked"


def _events(name: str, sales: list[dict[str, object]]) -> None:
    folder = settings.data_dir(name) / "events"
    if folder.exists():
        return
    rows = pa.Table.from_pylist(sales)
    for column in ("oo_kind", "oo_reason", "oo_raw", "oo_unknown"):
        value = "kept" if column == "oo_kind" else None
        rows = rows.append_column(column, pa.array([value] * len(sales), pa.string()))
    write_deltalake(str(folder), rows, partition_by=["oo_kind"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
