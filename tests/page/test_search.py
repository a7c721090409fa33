"""The search box: what became of a record, a unit, a batch, a run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fastapi.testclient import TestClient

from onlyonce.airflow.page import find
from onlyonce.sources import record_id
from tests.page.shop import EVIL, Shop, events
from tests.support.shop import SHOP


def asked(client: TestClient, q: str) -> str:
    """Return the page of a search."""
    answer = client.post("/search", data={"q": q})
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("q, records", [
    ("sale=1", ["0000000000000001fffffffffffffffe"]),
    ("shop=north sale=1 at='2026-03-01 00:00:00'", ["0000000000000001fffffffffffffffe"]),
    ("at=2026-03-01T01:00:00Z", ["7fffffffffffffff0000000000000005"]),
    ("0000000000000001fffffffffffffffe", ["0000000000000001fffffffffffffffe"]),
    ("0000000000000001FFFFFFFFFFFFFFFE", ["0000000000000001fffffffffffffffe"]),
    ("00000000000000070000000000000007", ["00000000000000070000000000000007"]),
    (f"shop={shlex.quote(EVIL)}", ["7fffffffffffffff0000000000000005"]),
    ("sale=3", []),
    ("0000000000000001ffffffffffffffff", []),
])  # fmt: skip
def test_a_record_is_found_by_its_values_or_its_id(
    shop: Shop, client: TestClient, tmp_path: Path, q: str, records: list[str]
) -> None:
    """In the table `events`, with its fate and the state of its batch; or it is said that it is not there."""
    events(tmp_path)
    html = asked(client, q)

    assert re.findall(r'data-record="(\w+)"', html) == records
    assert html.count("batch committed") == len(records)
    assert ("It is not in <code>events</code>" in html) == (not records)


@pytest.mark.parametrize("q, fate", [
    ("R0000970", "kept"), ("'R0000970'", "kept"), ('{"id": "R0000970"}', "kept"), ('["R0000970"]', "kept"),
    (str(record_id.of_values(SHOP, {"id": "R0000970"})), "kept"), ("R0000971", "invalid"),
])  # fmt: skip
def test_search_takes_what_trace_takes(
    shop: Shop, declared: None, client: TestClient, tmp_path: Path, q: str, fate: str
) -> None:
    """The values of the id columns, JSON, or the platform's own id; an invalid record by its line."""
    events(tmp_path)
    html = asked(client, q)

    assert re.findall(r'data-record="\w+">\s*<header><h2>(\w+)<', html) == [fate]


def test_words_that_are_no_id_are_told_apart_from_an_unknown_record(
    shop: Shop, declared: None, client: TestClient, tmp_path: Path
) -> None:
    """One value too many names the id columns; an id that never came is unknown."""
    events(tmp_path)

    assert "is known by 1 value(s) (id), but 2 were given" in asked(client, "R0000970 north")
    assert "It is not in <code>events</code>" in asked(client, "R0000972")


def test_a_pipeline_that_is_not_declared_here_is_named(shop: Shop, client: TestClient, tmp_path: Path) -> None:
    """Its id columns are unknown, so the page does not say that the record is unknown."""
    events(tmp_path)
    html = asked(client, "R0000970")

    assert "shop was not searched: its declaration can&#39;t be loaded here" in html
    assert "Nothing is known" not in html


def test_an_invalid_record_says_why(shop: Shop, client: TestClient, tmp_path: Path) -> None:
    """Its reason, and the line as it came."""
    events(tmp_path)
    html = asked(client, "00000000000000070000000000000007")

    assert "the line is blank" in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("q, shown", [
    ("shop/receive/1/17/events/1", 'data-unit="shop/receive/1/17/events/1"'),
    (" shop/receive/1/17 ", ">shop/receive/1/17</a>"),
    ("scheduled__1", ">shop/per_shop/1/79</a>"),
    ("manual__again", ">shop/per_shop@2026-03-01T04:00:00Z--2026-03-01T05:00:00Z/1/0</a>"),
])  # fmt: skip
def test_a_unit_a_batch_and_a_run_are_found_by_their_names(shop: Shop, client: TestClient, q: str, shown: str) -> None:
    """Each leads to its batch."""
    assert shown in asked(client, q)


@pytest.mark.parametrize("q", ["shop/receive/1/17/events/9", "shop/receive/1/9999", "nobody knows", "a" * 31, "1/2"])
def test_what_nobody_knows_is_said_to_be_unknown(shop: Shop, client: TestClient, q: str) -> None:
    """No guess, and no empty page."""
    assert "Nothing is known of it." in asked(client, q)


def test_a_column_that_no_pipeline_has_is_named(shop: Shop, client: TestClient, tmp_path: Path) -> None:
    """It is not the same as a record that is not there."""
    events(tmp_path)

    assert "no pipeline has a column color" in asked(client, "color=red")


def test_a_value_of_another_type_is_told(shop: Shop, client: TestClient, tmp_path: Path) -> None:
    """With the type that the column has."""
    events(tmp_path)
    html = asked(client, "sale=many")

    assert "is not of type int64, as sale is" in html
    assert "Nothing is known" not in html


class Sight:
    """What a reader sees of two pipelines, whose columns have other types."""

    def __call__(self, query: str, **_: object) -> list[dict[str, Any]]:
        """Their names; nothing else is known."""
        return [{"pipeline": name, "instance": name} for name in ("shop", "weir")] if query == "pipelines" else []

    def instances(self) -> list[str]:
        """Both."""
        return ["shop", "weir"]

    def sees_records(self, _instance: str) -> bool:
        """Each."""
        return True


def test_a_column_of_another_type_hides_no_other_pipelines_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found, whichever pipeline comes first; a list, to which no word can be compared, is told."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    events(tmp_path)
    rows = DeltaTable(str(tmp_path / "data/shop/events")).to_pyarrow_table()
    rows = rows.set_column(rows.schema.get_field_index("sale"), "sale", pa.array(["many"] * len(rows)))
    rows = rows.append_column("tags", pa.array([["red"]] * len(rows)))
    write_deltalake(str(tmp_path / "data/weir/events"), rows, partition_by=["oo_kind"])
    sight: Any = Sight()

    assert {row["instance"] for row in find.find(sight, "sale=many").records} == {"weir"}
    [told] = find.find(sight, "tags=red").remarks
    assert "'red' is not of type list<" in told


def test_a_table_that_is_too_large_is_not_looked_through(
    shop: Shop, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so, and what to do instead; it does not say that the record is not there."""
    events(tmp_path)
    monkeypatch.setattr(find, "MOST_FOUND", 2)
    html = asked(client, "sale=1")

    assert "too many to look through" in html
    assert "Nothing is known" not in html
