"""Names of columns: what `events` can't hold is refused when it is declared, and an alias maps it to a name that it
can."""

from __future__ import annotations

from typing import Any

import pytest

from onlyonce.api import identity
from onlyonce.api.pipeline import Custom, Delta, DeltaSource, Files, Growing, Input, Kafka, Output, Pipeline, PubSub
from onlyonce.core import erasure
from onlyonce.core.errors import Refused
from onlyonce.operate import erase_inputs

OUTPUT = Output(name="all", transform="m:f", sink=Delta())
SCHEMA = "id string, at timestamp, total double"
TOTAL = {"total": "Total Amount"}


def pipeline(**changed: Any) -> Pipeline:
    """A pipeline that is right but for what is changed."""
    plain: dict[str, Any] = {
        "name": "shop",
        "source": Files(),
        "schema": SCHEMA,
        "record_id": "id",
        "event_time": "at",
        "outputs": OUTPUT,
    }
    return Pipeline(**plain | changed)


@pytest.mark.parametrize("name", ["Total Amount", "x=1", "a,b", "p(q)", "a[0]", "{c}", "a;b", "a\tb", "a\nb"])
@pytest.mark.parametrize("kind", ["`{}` string", "s struct<`{}`: int>", "s map<string,array<struct<a int, `{}` int>>>"])
def test_name_that_no_delta_table_holds_is_refused(name: str, kind: str) -> None:
    """At the top and within, of a pipeline and of one of several sources."""
    schema = f"id string, at timestamp, {kind.format(name)}"
    with pytest.raises(Refused) as refused:
        pipeline(schema=schema)
    assert repr(name) in refused.value.what
    assert "aliases={" in refused.value.hint
    with pytest.raises(Refused, match="Input: the column"):
        Input(source=Files(), schema=schema)


@pytest.mark.parametrize("name", ["Total-Amount", "prix.é", "x'1", "#", "a`b"])
def test_other_names_are_declared_as_they_are(name: str) -> None:
    """What a Delta table holds needs no alias."""
    assert pipeline(schema=f"id string, at timestamp, `{name.replace('`', '``')}` string").columns()[2] == name


def test_alias_is_part_of_the_declaration() -> None:
    """Of a pipeline and of a source; a pipeline without any is as it was."""
    declared = pipeline(aliases=TOTAL)
    assert declared.named() == {"id": "id", "at": "at", "total": "Total Amount"}
    several = pipeline(source=pipeline().source, aliases=TOTAL)
    assert identity.receive_parts(declared)["aliases"] == TOTAL
    assert several == declared
    assert "aliases" not in identity.receive_parts(pipeline())
    sources: dict[str, Any] = {
        "a": Input(source=Files(inbox="/a"), schema=SCHEMA, aliases=TOTAL),
        "b": Files(inbox="/b"),
    }
    both: dict[str, Any] = {
        "name": "shop",
        "schema": SCHEMA,
        "record_id": "id",
        "event_time": "at",
        "outputs": OUTPUT,
        "id_space": "shared",
    }
    parts = Pipeline(sources=sources, **both)
    assert [parts.of_source(name).named()["total"] for name in "ab"] == ["Total Amount", "total"]
    assert [one.get("aliases") for one in identity.receive_parts(parts)["inputs"].values()] == [TOTAL, None]
    with pytest.raises(Refused, match="aliases with several sources"):
        Pipeline(sources=sources, aliases=TOTAL, **both)


@pytest.mark.parametrize(("changed", "why"), [
    ({"aliases": {"totl": "x"}}, "no column 'totl'"), ({"aliases": {"total": "id"}}, "two columns are 'id'"), ({"aliases": {"total": ""}}, "a name is empty"),
    ({"aliases": TOTAL, "source": Files(format="csv")}, "CSV without a header"), ({"aliases": TOTAL, "source": Growing(format="csv")}, "CSV without a header"),
    ({"aliases": TOTAL, "source": Custom(reader="m:C", needs_dedup=True)}, "a Custom source"), ({"aliases": TOTAL, "source": DeltaSource(path="/t")}, "a DeltaSource"),
    ({"aliases": {"id": "x"}, "source": Kafka(topic="t", servers="s:1", key="id")}, "'id' does not come from a field"),
    ({"aliases": {"id": "x"}, "source": PubSub(subscription="projects/p/subscriptions/s", record_id_attribute="id")}, "'id' does not come from a field"),
])  # fmt: skip
def test_alias_that_can_not_work_is_refused(changed: dict[str, Any], why: str) -> None:
    """By the column or the source that it does not fit."""
    with pytest.raises(Refused, match=why):
        pipeline(**changed)


@pytest.mark.parametrize("line", ['{"User Name":"u1","user":"u2"}', '{"User Name": "u1", '])
def test_erasure_finds_a_line_by_the_name_in_the_source(line: str) -> None:
    """Also in a line that is no JSON; a field with the column's own name is another one."""
    declared = pipeline(schema="id string, at timestamp, user string", aliases={"user": "User Name"})
    asked = [
        one.condition
        for who in ("u1", "u2")
        for one in erase_inputs.source_conditions(
            declared, erasure.read_conditions(f"user = '{who}'", {"user": "string"})
        )
    ]
    assert [one is not None and one.fits_line(line, None) for one in asked] == [True, False]
