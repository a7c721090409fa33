"""Several sources of a pipeline: what can't work is refused with the way out, and one source is declared as it ever
was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import Custom, Delta, Files, Fixed, Input, Kafka, Output, Pipeline, PubSub
from onlyonce.api import load
from onlyonce.api.identity import receive_parts
from onlyonce.core import changes
from onlyonce.core.errors import Refused

OWN = "no string, created timestamp, cents bigint"


def pipeline(**changed: Any) -> Pipeline:
    """A pipeline with two sources."""
    options: dict[str, Any] = {
        "name": "sales",
        "sources": {"web": Files(), "till": till()},
        "id_space": "by_source",
        "schema": "id string, at timestamp, amount double, shop string",
        "record_id": "id",
        "event_time": "at",
        "outputs": Output(name="hours", transform="transforms:hours", window=Fixed(timedelta(hours=1)), sink=Delta()),
    }
    return Pipeline(**(options | changed))


def till(**changed: Any) -> Input:
    """One with columns of its own."""
    columns = {"id": "no", "at": "created", "amount": "cents / 100.0D", "shop": "'berlin'"}
    options: dict[str, Any] = {
        "source": Files(format="csv"),
        "schema": OWN,
        "columns": columns,
        "idle_after": timedelta(hours=1),
    }
    return Input(**(options | changed))


def test_each_source_is_as_if_it_were_the_only_one() -> None:
    """With its own columns, record id and event time."""
    view = pipeline().of_source("till")

    assert (view.schema, view.record_id, view.event_time, view.source.format) == (OWN, ("no",), "created", "csv")
    assert view.part is not None
    assert [made for _, _, made in view.part.columns] == ["no", "created", "cents / 100.0D", "'berlin'"]
    assert pipeline(id_space="shared").of_source("web").record_id == ("id",)


REFUSALS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "neither": (lambda: pipeline(sources={}), "one of source and sources", "source=Files"),
    "both": (lambda: pipeline(source=Files()), "one of source and sources", "source=Files"),
    "no word on ids": (lambda: pipeline(id_space=None), "whether two of them may give one record", "id_space='shared'"),
    "another word on ids": (lambda: pipeline(id_space="share"), "id_space='share'", "did you mean 'shared'"),
    "places that are shared": (lambda: pipeline(record_id=(), id_space="shared"), "a record is its place", "leave id_space out"),
    "at least once": (lambda: pipeline(mode="at_least_once"), "at_least_once.* is for one source", "leave mode out"),
    "Pub/Sub": (
        lambda: pipeline(sources={"web": PubSub(subscription="projects/a/subscriptions/b")}), "PubSub can't be one of several", "of its own"),
    "one inbox twice": (
        lambda: pipeline(sources={"a": Files(inbox="/in"), "b": Files(inbox="/in")}), "two of its sources read the inbox /in", "once"),
    "one topic twice": (
        lambda: pipeline(sources={name: Kafka(topic="t", servers="s:1") for name in "ab"}), "two of its sources read the topic t", "once"),
    "a name in capitals": (lambda: pipeline(sources={"Web": Files()}), "source name 'Web'", "lower case"),
    "a column that the pipeline has not": (
        lambda: pipeline(sources={"a": till(columns={"amonut": "cents"})}), "no column 'amonut'", "the pipeline has: id"),
    "a record id that is computed": (
        lambda: pipeline(sources={"a": till(columns={"id": "upper(no)", "at": "created"})}), "'id' identifies a record", "one of: no"),
    "an event time of another type": (
        lambda: pipeline(sources={"a": till(columns={"id": "no", "at": "cents"})}), "'at' identifies a record or is its event time", "created"),
    "a column of another type": (
        lambda: pipeline(sources={"a": till(schema=f"{OWN}, amount int", columns={"id": "no", "at": "created"})}),
        "its column amount is of type int, the pipeline's of type double", "cast"),
    "columns without a schema": (lambda: till(schema=None), "columns without a schema", "own columns"),
    "no idle time": (lambda: till(idle_after=timedelta(0)), "idle_after", "leave it out"),
    "what is for one source": (lambda: pipeline().source.inbox, "several sources", "several-sources.md"),
    "a source that is gone": (lambda: pipeline().of_source("kiosk"), "the source 'kiosk' is to be read", "declare it again"),
    "a reader that needs ids": (
        lambda: pipeline(record_id=(), id_space=None, sources={"a": Custom(reader="m:C", needs_dedup=True)}), "needs dedup", "needs_dedup=False"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    """Message and hint name the option."""
    declare, what, hint = REFUSALS[case]
    with pytest.raises(Refused, match=what) as refusal:
        declare()
    assert hint in refusal.value.hint


CHANGES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, []),
    "added": ({"sources": {"web": Files(), "till": till(), "kiosk": Files()}}, [("source kiosk", "nothing")]),
    "retired": ({"sources": {"web": Files()}}, [("source till", "nothing")]),
    "another kind": ({"sources": {"web": Kafka(topic="t", servers="s:1"), "till": till()}}, [("source web", "another name")]),
    "another idle time": ({"sources": {"web": Files(), "till": till(idle_after=None)}}, [("idle_after of source till", "nothing")]),
    "other columns": (
        {"sources": {"web": Files(), "till": till(columns={"id": "no", "at": "created"})}}, [("columns of source till", "nothing")]),
    "other ids": ({"id_space": "shared"}, [("id_space", "nothing")]),
    "one source": ({"sources": {}, "source": Files(), "id_space": None}, [("sources", "another name")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_source_has_its_consequence_and_another_fingerprint(case: str) -> None:
    """In one order of the declaration or another."""
    changed, wanted = CHANGES[case]
    before, after = pipeline(), pipeline(**changed)
    found = changes.changes("receive", receive_parts(before), receive_parts(after))

    assert [(change.part, str(change.need)) for change in found] == wanted
    assert (load.fingerprint(before, "receive") != load.fingerprint(after, "receive")) == bool(wanted)
