"""An output whose target can't be opened stops no other, whatever kind of target it is and in whatever way it is
broken."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.core.errors import OnlyonceError
from tests.support import shop_oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

DECLARED = """
from datetime import timedelta

from onlyonce import *
from tests.support.shop import SHOP

PIPELINES = [Pipeline(
    name="shop", source=SHOP.source, schema=SHOP.schema, record_id=SHOP.record_id, event_time=SHOP.event_time,
    outputs=(
        {outputs}
        SHOP.outputs[0],
    ),
)]
"""
OUTPUT = """Output(name="{name}", transform="tests.support.broken_outputs:{function}", {options}),
        """
PORT = "127.0.0.1:1"
"""Nothing listens there."""


def corrupt_log(home: Path, name: str) -> None:
    """Make a Delta table whose log is no JSON."""
    log = home / "tables" / "shop" / name / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON\n")


def file_for_a_folder(home: Path, name: str) -> None:
    """Make files where the folders of a table or a file sink should be."""
    for kind in ("tables", "files"):
        (home / kind / "shop").mkdir(parents=True, exist_ok=True)
        (home / kind / "shop" / name).write_text("a file\n")


def nothing(home: Path, name: str) -> None:
    """Leave the disk as it is."""


Break = Callable[[Path, str], None]
LOOKUPS = "sink=Delta(), lookups=Lookup(name='cities', keys='shop', table="
BROKEN: dict[str, tuple[str, Break, dict[str, str]]] = {
    "lookup_gone": (LOOKUPS + "Delta(path='not_there'))", nothing, {}),
    "lookup_unset": (LOOKUPS + "Postgres(table='a.cities', connection='UNSET'))", nothing, {}),
    "lookup_away": (LOOKUPS + "Postgres(table='a.cities', connection='PG_AWAY'))", nothing, {}),
    "delta_log": ("sink=Delta()", corrupt_log, {}),
    "delta_file": ("sink=Delta()", file_for_a_folder, {}),
    "postgres_unset": ('sink=Postgres(table="results.a", connection="UNSET")', nothing, {}),
    "postgres_url": ('sink=Postgres(table="results.b", connection="NO_URL")', nothing, {"NO_URL": "no url"}),
    "postgres_scheme": ('sink=Postgres(table="results.c", connection="OTHER")', nothing, {"OTHER": "oracle://u:p@h/x"}),
    "postgres_port": ('sink=Postgres(table="results.d", connection="PORT")', nothing, {"PORT": "postgresql://u:p@h:port/x"}),
    "postgres_away": (
        'sink=Postgres(table="results.e", connection="PG_AWAY")', nothing, {"PG_AWAY": f"postgresql+psycopg2://u:p@{PORT}/x"},
    ),
    "mysql_url": ('sink=MySQL(table="f", connection="NO_MYSQL_URL")', nothing, {"NO_MYSQL_URL": "mysql:"}),
    "mysql_away": ('sink=MySQL(table="g", connection="MYSQL_AWAY")', nothing, {"MYSQL_AWAY": f"mysql://u:p@{PORT}/x"}),
    "iceberg_unset": ('sink=Iceberg(table="a.h", catalog="unset")', nothing, {}),
    "iceberg_kind": ('sink=Iceberg(table="a.i", catalog="kind")', nothing, {"PYICEBERG_CATALOG__KIND__TYPE": "no kind"}),
    "iceberg_uri": (
        'sink=Iceberg(table="a.j", catalog="uri")', nothing,
        {"PYICEBERG_CATALOG__URI__TYPE": "sql", "PYICEBERG_CATALOG__URI__URI": "no uri"},
    ),
    "iceberg_own": (
        'sink=Iceberg(table="a.k", catalog="own")', nothing,
        {"PYICEBERG_CATALOG__OWN__PY_CATALOG_IMPL": "tests.support.broken_outputs.OwnCatalog"},
    ),
    "iceberg_away": (
        'sink=Iceberg(table="a.o", catalog="away")', nothing,
        {"PYICEBERG_CATALOG__AWAY__TYPE": "rest", "PYICEBERG_CATALOG__AWAY__URI": f"http://{PORT}"},
    ),
    "files": ("sink=FileSink()", file_for_a_folder, {}),
    "webhook_unset": ('sink=Webhook(connection="UNSET")', nothing, {}),
    "kafka_unset": ('sink=KafkaSink(topic="l", connection="UNSET")', nothing, {}),
    "kafka_away": (
        'sink=KafkaSink(topic="m", connection="KAFKA_AWAY", timeout=timedelta(seconds=1))', nothing, {"KAFKA_AWAY": PORT},
    ),
    "bigquery": (
        'sink=BigQueryStream(table="a.b.n", timeout=timedelta(seconds=1))', nothing,
        {"GOOGLE_APPLICATION_CREDENTIALS": "/not/there"},
    ),
}  # fmt: skip

SENT = {"webhook_unset", "kafka_unset", "kafka_away", "bigquery"}


def test_broken_outputs_stop_no_other(
    new_platform: Callable[[str], Platform], monkeypatch: pytest.MonkeyPatch, spark: object, tmp_path: Path
) -> None:
    """Receive takes in all, the healthy output has the oracle's rows, and the run names each broken output.

    Rows for a system outside wait in the outbox, whether it answers or not.
    """
    declared = tmp_path / "broken.py"
    outputs = [
        OUTPUT.format(name=name, options=options, function="found" if "lookups" in options else "ids")
        for name, (options, _, _) in BROKEN.items()
    ]
    declared.write_text(DECLARED.format(outputs="".join(outputs)))
    platform = new_platform(str(declared))
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "1")
    for name, (_, break_it, environment) in BROKEN.items():
        break_it(settings.home(), name)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
    [records] = shop_oracle.sales(60, 1)
    platform.put("shop", "a.jsonl", records)

    with pytest.raises(OnlyonceError) as ended:
        platform.run("shop", "--close")

    named = {name for name in BROKEN if re.search(rf"(output|does) {name}\b", str(ended.value))}
    assert named == {*BROKEN} - SENT
    committed = platform.sql("SELECT DISTINCT split_part(incarnation, '/', 2) AS query FROM onlyonce.batches")["query"]
    assert {*committed} == {"receive", "per_shop", *SENT}
    columns = ("window_start", "shop", "sales", "cents")
    expected = shop_oracle.per_shop(shop_oracle.distinct([records]))
    assert multiset(platform.table("shop/per_shop"), *columns) == multiset(expected, *columns)
    assert platform.sql("SELECT conserved FROM onlyonce.conservation")["conserved"].all()
