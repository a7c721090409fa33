"""A delivery that fails: one message, with what is left in the outbox; a package has one name and one command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import google.cloud
import pytest

from onlyonce.api.pipeline import BigQuery, BigQueryStream, KafkaSink
from onlyonce.core.delivery import IN_OUTBOX
from onlyonce.core.errors import Refused, Retryable
from onlyonce.sinks.outbox import deliver, send_bigquery, send_kafka

TABLE = "project.dataset.table"
OPENED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "google.cloud.bigquery": (lambda: send_bigquery.opened_inserts(BigQuery(table=TABLE)), "bigquery"),
    "google.cloud.bigquery_storage_v1": (
        lambda: send_bigquery.opened_stream(BigQueryStream(table=TABLE), None),  # type: ignore[arg-type]
        "bigquery",
    ),
    "confluent_kafka": (lambda: send_kafka.opened_producer(KafkaSink(topic="t", connection="K"), "p/o"), "kafka"),
}
"""What opens a sender, by the package that it needs, and the extra that brings this."""


@pytest.mark.parametrize("package", OPENED)
def test_a_missing_package_has_the_name_that_check_gives_it_and_its_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the sink's line."""
    opened, extra = OPENED[package]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delattr(google.cloud, "bigquery", raising=False)

    with pytest.raises(Refused) as refused, opened():
        pass

    place, what = refused.value.what.split(": ", 1)
    assert place.startswith(f"{__file__}:")
    assert what == f"the package {package} is not installed here"
    assert refused.value.data == IN_OUTBOX
    assert refused.value.hint == f"pip install 'onlyonce-pipelines[{extra}]' where `onlyonce deliver` runs"


def test_an_unfinished_delivery_is_one_error_with_what_is_left() -> None:
    """The first problem decides who acts; the others are named."""
    first = Refused("no such topic", data="nothing was sent", hint="make it")
    found = deliver.undelivered([first, Retryable("no answer")], {"waiting": 1005, "dead": 2, "invalid": 0})

    assert (type(found), found.what, found.hint) == (Refused, first.what, first.hint)
    assert found.data == "nothing was sent; rows in the outbox now: 1,005 waiting, 2 dead; also: no answer"
