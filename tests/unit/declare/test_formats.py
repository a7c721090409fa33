"""Which forms of times a declaration may name."""

from __future__ import annotations

from typing import Any

import pytest

from onlyonce.api import identity
from onlyonce.api.messages import Avro
from onlyonce.api.pipeline import Custom, Delta, DeltaSource, Files, Input, Kafka, Output, Pipeline
from onlyonce.core.errors import Refused

SCHEMA = (
    "id string, at timestamp, born date, wall timestamp_ntz, o struct<sent: timestamp, many: "
    "array<struct<on: date>>>, m map<string, timestamp>"
)
RIGHT = {
    "at": "epoch_ms",
    "born": "%d/%m/%Y",
    "wall": "%d/%m/%Y %H:%M",
    "o.sent": "epoch_s",
    "o.many.on": "%d.%m.%Y",
    "m": "%Y%m%d",
}


def pipeline(**changed: Any) -> Pipeline:
    """A pipeline that is right but for what is changed."""
    plain: dict[str, Any] = {
        "name": "shop", "source": Files(), "schema": SCHEMA, "record_id": "id", "event_time": "at", "outputs": Output(name="all", transform="m:f", sink=Delta())
    }  # fmt: skip
    return Pipeline(**plain | changed)


def test_forms_are_part_of_the_declaration() -> None:
    """Of a pipeline and of one of several sources; a pipeline without any is as it was."""
    assert identity.receive_parts(pipeline(formats=RIGHT))["formats"] == RIGHT
    assert "formats" not in identity.receive_parts(pipeline())
    sources: dict[str, Any] = {
        "a": Input(source=Files(inbox="/a"), schema=SCHEMA, formats=RIGHT),
        "b": Files(inbox="/b"),
    }
    several: dict[str, Any] = {
        "name": "shop",
        "schema": SCHEMA,
        "record_id": "id",
        "event_time": "at",
        "outputs": pipeline().outputs,
        "sources": sources,
        "id_space": "shared",
    }
    both = Pipeline(**several)
    assert [dict(both.of_source(name).formats) for name in "ab"] == [RIGHT, {}]
    assert [one.get("formats") for one in identity.receive_parts(both)["inputs"].values()] == [RIGHT, None]
    with pytest.raises(Refused, match="formats with several sources"):
        Pipeline(formats=RIGHT, **several)


@pytest.mark.parametrize(("changed", "why"), [
    ({"formats": {"att": "epoch_ms"}}, "'att', which is not declared"), ({"formats": {"id": "epoch_ms"}}, "'id', which is a string and no time"),
    ({"formats": {"o": "epoch_ms"}}, "'o', which is not declared"), ({"formats": {"born": "epoch_ms"}}, "the column is a date"),
    ({"formats": {"wall": "epoch_ms"}}, "the column is a timestamp_ntz"), ({"formats": {"born": "%d/%m/%Y %H"}}, "a time of day, and the column is a date"),
    ({"formats": {"wall": "%d/%m/%Y %z"}}, "a zone, and the column is a timestamp_ntz"), ({"formats": {"at": "dd/MM/yyyy"}}, "exactly one of %Y"),
    ({"formats": RIGHT, "source": Files(format="parquet")}, "have types of their own"), ({"formats": RIGHT, "source": DeltaSource(path="/t")}, "have types of their own"),
    ({"formats": RIGHT, "source": Custom(reader="m:C", needs_dedup=True)}, "have types of their own"),
    ({"formats": RIGHT, "schema": f"{SCHEMA}, schema_id int", "source": Kafka(topic="t", servers="s:1", value=Avro(registry="http://r"))}, "have a schema of their own"),
])  # fmt: skip
def test_a_form_that_can_not_work_is_refused(changed: dict[str, Any], why: str) -> None:
    """By the column, the form or the source that it does not fit."""
    with pytest.raises(Refused, match=why):
        pipeline(**changed)
