"""What a run stores says nothing of the code's names: a rename changes nothing that is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from onlyonce import settings
from tests.support.platform import Platform
from tests.support.renamed import classes

pytestmark = pytest.mark.spark

TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'onlyonce_private' AND table_type "
    "= 'BASE TABLE'"
)


def test_nothing_stored_has_a_class_name_or_a_repr(new_platform: Callable[..., Platform], spark: object) -> None:
    """Each row of the log and each commit of the Delta tables, after a run with windows, two databases' sinks and a
    close."""
    platform = new_platform("tests/support/shop.py")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    platform.put("shop", "a.jsonl", [
        {"id": str(n), "shop": "b", "at": (start + n * timedelta(seconds=20)).isoformat(), "cents": n, "weight": 1.0} for n in range(20)
    ])  # fmt: skip
    platform.run("shop", "--close")

    names = {one.__name__ for one in classes()} - {"DeltaTable"}
    found: dict[str, str] = {}
    for [table] in platform.sql(TABLES).to_numpy():
        for [row] in platform.sql(f"SELECT to_jsonb(t)::text FROM onlyonce_private.{table} t").to_numpy():
            found |= _named(f"a row of {table}", row, names)
    commits = sorted(settings.data_location("shop").parent.rglob("_delta_log/*.json"))  # type: ignore[union-attr]
    assert len(commits) >= 5
    for commit in commits:
        for line in commit.read_text().splitlines():
            told = json.loads(line)
            told.get("commitInfo", {}).pop("engineInfo", None)
            found |= _named(str(commit), json.dumps(told), names)
    assert found == {}


def _named(where: str, text: str, names: set[str]) -> dict[str, str]:
    """Return the class names in a stored text, and whatever looks like the repr of an object."""
    met = {word for word in re.findall(r"\b\w+\b", text) if word in names}
    met |= set(re.findall(r"\b[A-Za-z_]+\([a-z_]+=", text))
    return {f"{where}: {word}": text[:300] for word in met}
