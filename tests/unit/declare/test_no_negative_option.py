"""No declared length of time and no declared number may be negative, in any class that a declaration is made of."""

import inspect
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import pytest

import onlyonce
from onlyonce import Delta, Files, Fixed, Output, Postgres
from onlyonce.core.durations import in_words
from onlyonce.core.errors import Refused

HOUR = timedelta(hours=1)
NEEDED: dict[str, dict[str, Any]] = {
    "Pipeline": {
        "name": "p", "source": Files(), "schema": "id string, at timestamp", "record_id": "id", "event_time": "at",
        "outputs": Output(name="o", transform="m:f", sink=Delta(), window=Fixed(HOUR), watermark_delay=HOUR),
    },
    "Output": {"name": "o", "transform": "m:f", "sink": Delta(), "window": Fixed(HOUR), "watermark_delay": HOUR},
    "BigQuery": {"table": "p.d.t"},
    "BigQueryStream": {"table": "p.d.t"},
    "Custom": {"reader": "m:f", "needs_dedup": True},
    "DeltaSource": {"path": "/there"},
    "Fixed": {"size": HOUR},
    "Input": {"source": Files()},
    "Join": {"left": "m:a", "right": "m:b", "on": "id", "within": HOUR},
    "Kafka": {"topic": "t", "servers": "there:9092"},
    "KafkaSink": {"topic": "t", "connection": "THERE"},
    "Lookup": {"name": "l", "table": Postgres(table="results.l"), "keys": "id"},
    "PubSub": {"subscription": "projects/p/subscriptions/s"},
    "Sliding": {"size": HOUR, "slide": HOUR / 2},
    "Stateful": {"processor": "m:f", "keys": "id", "schema": "id string", "timers_within": HOUR},
    "Webhook": {"url": "https://there/"},
}  # fmt: skip
"""What a class can't be made without."""


def _numbers() -> list[tuple[type, str, Any]]:
    found: list[tuple[type, str, Any]] = []
    for _, made in inspect.getmembers(onlyonce, inspect.isclass):
        for field in fields(made) if is_dataclass(made) else ():
            kind = str(field.type)
            if kind.startswith(("timedelta", "int", "float")):
                found.append((made, field.name, timedelta(seconds=-1) if kind.startswith("timedelta") else -1))
    return found


@pytest.mark.parametrize("made, option, value", _numbers(), ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_negative_option_is_refused(made: type, option: str, value: Any) -> None:
    """With the option's name or the value, by the class itself: so before any row."""
    with pytest.raises(Refused) as told:
        made(**NEEDED.get(made.__name__, {}) | {option: value})

    assert option in told.value.what or in_words(value) in told.value.what or repr(value) in told.value.what
