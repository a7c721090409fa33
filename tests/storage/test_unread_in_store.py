"""What an inbox in an object store has and no committed batch has read; and a store that does not answer."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import backlog as model
from onlyonce.core.backlog import Backlog
from onlyonce.core.locations import Location
from onlyonce.sources import backlog
from onlyonce.sources.all_sources import source_of
from onlyonce.tables import stores
from tests.support.s3 import S3
from tests.support.shop import SHOP

DRIVER = Driver("shop/receive/1", 1, 1, "test")
LINE = b'{"id": "a"}\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home in which nothing was read."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))


@pytest.mark.spark
@pytest.mark.parametrize("place", ["versitygw"], indirect=True)
def test_unread_objects(place: Location, spark: Any) -> None:
    """All of them, then what no batch has committed, then nothing, then what has come since."""
    pipeline, readings = replace(SHOP, source=Files(inbox=str(place))), dict[str, Any]()
    stores.of(place).put(place / "0.jsonl", 2 * LINE)
    before = backlog.unread(pipeline, None, readings)
    source_of(pipeline, "shop", None).register(spark, DRIVER, datetime.now(UTC))
    registered = backlog.unread(pipeline, None, readings)
    committed = source_of(pipeline, "shop", None).last_batch()
    after = backlog.unread(pipeline, committed, readings)
    stores.of(place).put(place / "1.jsonl", LINE)
    since = backlog.unread(pipeline, committed, readings)

    assert (before.records, before.bytes, before.detail) == (None, 2 * len(LINE), {"files": 1})
    assert before.oldest is not None
    assert abs(datetime.now(UTC) - before.oldest) < timedelta(minutes=5)
    assert (registered.records, registered.bytes) == (2, 2 * len(LINE))
    assert after == Backlog()
    assert (since.records, since.bytes, since.detail) == (None, len(LINE), {"files": 1})


def no_number(pipeline: Pipeline) -> str | None:
    """Ask as `onlyonce lag` does, by a new asker; the answer has no number. Return its reason."""
    [(_, answer)] = backlog.Asker().ask([pipeline], {}).values()
    assert answer.failed
    assert (answer.records, answer.bytes, answer.oldest) == (None, None, None)
    return answer.why


def test_store_without_an_answer_has_no_number(versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that takes the request and never answers: the reason is the bound."""
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        why = no_number(replace(SHOP, source=Files(inbox=f"{versitygw.bucket()}/inbox")))

    assert why == model.not_in_time().why


def test_wrong_key_of_a_store_has_no_number(versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the store's."""
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    bucket = versitygw.bucket()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-guess")

    why = no_number(replace(SHOP, source=Files(inbox=f"{bucket}/inbox")))

    assert why is not None
    assert why != model.not_in_time().why
    assert "a-guess" not in why
