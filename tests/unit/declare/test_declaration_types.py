"""What type checkers say of a declaration: mypy looks at this file in `make check`, and an ignored error that is none
is one (pyproject.toml)."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any, assert_type

import pytest

import onlyonce
from onlyonce import (
    Delta,
    DeltaSource,
    Files,
    FileSink,
    Fixed,
    Join,
    Kafka,
    KafkaSink,
    Output,
    Pipeline,
    Postgres,
    Refused,
    Session,
    Sliding,
)
from onlyonce.api import declaration
from onlyonce.api.declaration import call_of
from tests.support import shop_transforms

COUNTS = Output(
    name="counts", transform="m:f", window=Fixed(timedelta(hours=1)), panes="early",
    sink=Postgres(table="results.counts", write="upsert", keys="window_start"),
)  # fmt: skip


def test_one_or_several_may_be_given_and_a_tuple_is_read() -> None:
    """For type checkers as at run time: a name, a list, a tuple."""
    one = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=COUNTS
    )
    some = Pipeline(
        name="p", source=Kafka(topic="t", servers="h:9092", headers="id"), schema="id string, at timestamp",
        record_id=("id", "at"), event_time="at", outputs=[COUNTS, Output(name="all", transform="m:g", sink=Delta())],
    )  # fmt: skip
    none = Pipeline(
        name="p", source=Files(), schema="at timestamp", record_id=(), event_time="at", outputs=(COUNTS,)
    )  # fmt: skip

    assert_type(one.record_id, tuple[str, ...])
    assert_type(some.outputs, tuple[Output, ...])
    assert (one.record_id, len(some.outputs), none.record_id) == (("id",), 2, ())
    assert KafkaSink(topic="t", connection="C", keys=["a"]).keys == ("a",)
    assert FileSink(format="csv").keys == ()


def test_what_is_wrong_is_wrong_for_type_checkers_too() -> None:
    """Each of these lines is an error of mypy, and refused when it runs."""
    with pytest.raises(Refused, match="write='upsrt'"):
        Delta(write="upsrt", keys="id")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="unknown option 'key'"):
        Delta(write="upsert", key="id")  # type: ignore[call-arg]
    with pytest.raises(Refused):
        Delta(write="upsert", keys=None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="late='drop'"):
        Output(name="counts", transform="m:f", sink=Delta(), late="drop")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="format='xml'"):
        Files(format="xml")  # type: ignore[arg-type]


DECLARED = [
    found
    for found in (getattr(onlyonce, name) for name in onlyonce.__all__)
    if inspect.isclass(found) and found.__name__ in declaration.OPTIONS
]
"""The classes of declarations whose options have names."""


@pytest.mark.parametrize("declared", DECLARED)
def test_an_editor_sees_the_options(declared: type) -> None:
    """By their names, as keywords, with their defaults."""
    parameters = inspect.signature(declared).parameters.values()
    assert [one.name for one in parameters] == [field.name for field in fields(declared) if field.init]
    assert {one.kind for one in parameters} == {inspect.Parameter.KEYWORD_ONLY}


def test_types_for_annotations_and_open_are_named_by_the_package() -> None:
    """An editor completes `onlyonce.open`; a star import leaves Python's own."""
    assert {"Sink", "Source", "Window"} <= {*onlyonce.__all__}
    assert "open" in dir(onlyonce)
    assert "open" not in onlyonce.__all__


@pytest.mark.parametrize("declared", DECLARED)
def test_value_of_another_type_is_refused_by_its_option(declared: type) -> None:
    """Each option of each declaration, with what it takes; no option takes just anything."""
    assert len(DECLARED) > 20
    for option in [field.name for field in fields(declared) if field.init]:
        with pytest.raises(Refused, match=rf"^{declared.__name__}\({option}=.*\): must be ") as refused:
            declared(**{option: object()})
        assert option in refused.value.hint


@pytest.mark.parametrize("declared", DECLARED)
def test_nothing_in_place_of_a_value_is_refused_unless_it_is_the_default(declared: type) -> None:
    """As what the option takes, and not by an error of Python's."""
    for field in fields(declared):
        if field.init and getattr(declared, field.name, ...) is not None:
            with pytest.raises(Refused, match=rf"^{declared.__name__}\({field.name}=None\): must be ") as refused:
                declared(**{field.name: None})
            leave = "leave it out" in refused.value.hint
            assert not leave or field.default is not MISSING or field.default_factory is not MISSING


HOUR = timedelta(hours=1)
MEANT: dict[str, tuple[dict[str, Any], str, str]] = {
    "a sink by its name": ({"sink": "delta"}, "sink='delta'): must be Delta, Postgres, ", "did you mean sink=Delta()"),
    "a sink that needs an option": (
        {"sink": "webhook"},
        "sink='webhook'): must be Delta",
        "did you mean sink=Webhook(url=…)",
    ),
    "a sink's class": ({"sink": Postgres}, "sink=Postgres): is the class itself", "write sink=Postgres(table=…)"),
    "a length of time": ({"window": HOUR}, "must be Fixed, Sliding or Session", "window=Fixed(timedelta(hours=1))"),
    "an hour in words": ({"window": "1 hour"}, "must be Fixed, Sliding or Session", "window=Fixed(timedelta(hours=1))"),
    "a window by its name": ({"window": "session"}, "must be Fixed, Sliding or Session", "window=Session(gap=…)"),
    "a table's name": (
        {"sink": "results.shop"},
        "sink='results.shop'): must be Delta",
        "did you mean sink=Postgres(table='results.shop')?",
    ),
    "a table's folder": (
        {"sink": "/lake/shop"},
        "sink='/lake/shop'): must be Delta",
        "did you mean sink=Delta(path='/lake/shop')?",
    ),
    "a source": ({"sink": Files()}, "sink=Files(…)): must be Delta", "for example sink=Delta()"),
    "a number": ({"name": 7}, "name=7): must be a string", "for example name='7'"),
    "yes": (
        {"stable_input": "yes"},
        "stable_input='yes'): must be True or False",
        "give stable_input as True or False",
    ),
    "none at all": ({"sink": None}, "sink=None): must be Delta, Postgres, ", "for example sink=Delta()"),
    "no name": ({"name": None}, "name=None): must be a string", "give name as a string"),
    "a module": (
        {"transform": inspect},
        "must be a function or class, or its import path",
        "such as transform='transforms:name'",
    ),
    "a yes among numbers": (
        {"lookups": [True]},
        "lookups=True): must be Lookup",
        "for example lookups=Lookup(name=…, table=…, keys=…)",
    ),
}


def test_each_option_of_another_library_means_an_option_of_a_declaration() -> None:
    known = {name for options in declaration.OPTIONS.values() for name in options}

    assert {one for ours in declaration.OTHER_OPTIONS.values() for one in ours} <= known
    assert not set(declaration.NO_OPTIONS) & (known | set(declaration.OTHER_OPTIONS))


OTHER_WORDS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "several topics": (Kafka, {"topics": ["a", "b"]}, "did you mean 'topic'? It names one topic: a pipeline reads several by sources={"),
    "a pattern of topics": (Kafka, {"subscribePattern": "a.*"}, "a pipeline reads several by sources={"),
    "a list in one option": (Kafka, {"topic": ["a", "b"]}, "give topic as a string. It names one topic: a pipeline reads several by sources={"),
    "a list in one string": (Kafka, {"topic": "a,b", "servers": "b:9092"}, "a pipeline reads several by sources={"),
    "a name that is a table's folder": (Delta, {"table": "orders"}, "a folder is named by path='orders'"),
    "a name that is a source's folder": (DeltaSource, {"table": "orders"}, "a folder is named by path='orders'"),
    "where a table is": (Delta, {"location": "orders"}, "did you mean 'path'?"),
    "where a source is": (DeltaSource, {"uri": "s3://lake/orders"}, "did you mean 'path'?"),
    "a version": (DeltaSource, {"path": "orders", "startingVersion": 3}, "did you mean 'start'?"),
    "a feed": (DeltaSource, {"path": "orders", "readChangeFeed": True}, "did you mean 'changes'?"),
}  # fmt: skip
"""Options of Spark's readers and of Delta, and what the hint says to write."""


@pytest.mark.parametrize("made, given, hint", OTHER_WORDS.values(), ids=OTHER_WORDS)
def test_hint_says_what_to_write_for_an_option_of_spark(
    made: Callable[..., Any], given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(Refused) as refused:
        made(**given)

    assert hint in refused.value.hint


@pytest.mark.parametrize("given, what, hint", MEANT.values(), ids=MEANT)
def test_hint_has_what_was_probably_meant(given: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        Output(**dict[str, Any](name="counts", transform="m:f", sink=Delta()) | given)
    assert what in refused.value.what
    assert hint in refused.value.hint


@pytest.mark.parametrize("declared", [*DECLARED, Fixed, Sliding, Session])
def test_call_of_a_class_names_each_option_that_it_needs(declared: type) -> None:
    """Those, and no others, are what a call without options lacks."""
    options = re.findall(r"(\w+)=…", call_of(declared))
    lacking = ""
    try:
        declared()
    except (Refused, TypeError) as refused:
        lacking = str(refused)

    assert bool(options) == bool(lacking)
    assert all(option in lacking for option in options)
    if names := re.findall(r"`(\w+)`", lacking) or re.findall(r"'(\w+)'", lacking.partition("argument")[2]):
        assert names == options


@pytest.mark.parametrize(
    "given, name",
    [(len, "len"), (os.path.join, "join"), (json.dumps, "dumps"), (dict, "dict")],
    ids=["built in", "of a module", "of a package", "class"],
)
def test_function_of_python_itself_is_refused(given: Any, name: str) -> None:
    with pytest.raises(Refused, match=f"^Output: transform={name}: it is part of Python's own library") as refused:
        Output(name="a", transform=given, sink=Delta())
    assert "write your own in a module next to the declarations" in refused.value.hint


def test_record_id_that_is_left_out_is_explained() -> None:
    """None as well: a record may be identified by its place, which must be said."""
    given: dict[str, Any] = {"name": "p", "source": Files(), "schema": "at timestamp", "event_time": "at"}
    for wrong in ({}, {"record_id": None}):
        with pytest.raises(Refused) as refused:
            Pipeline(**given, **wrong, outputs=COUNTS)  # type: ignore[arg-type]
        assert "() for its place in the source" in refused.value.hint


def test_function_is_declared_by_itself_or_by_its_import_path() -> None:
    """Both are one declaration."""
    path = "tests.support.shop_transforms:per_shop"
    by_path = Output(name="a", transform=path, sink=Delta())
    by_itself = Output(name="a", transform=shop_transforms.per_shop, sink=Delta())

    assert by_itself == by_path
    assert assert_type(by_itself.transform, str) == path
    assert Join(left=shop_transforms.per_shop, right=path, on="shop", within=HOUR).left == path


def made_inside() -> Callable[..., Any]:
    """A function that no import can find."""

    def inside(rows: Any) -> Any:
        return rows

    return inside


def in_declarations(rows: Any) -> Any:
    """A function of the file of the declarations."""
    return rows


in_declarations.__module__ = "shop.onlyonce_pipelines_pipelines"


@pytest.mark.parametrize(
    "function, why",
    [
        (lambda rows: rows, "is a lambda, which has no name"),
        (made_inside(), "is made_inside.<locals>.inside, which is defined inside another function or class"),
        (in_declarations, "is in_declarations, which is defined in the file of the declarations"),
    ],
    ids=["lambda", "inside", "declarations"],
)
def test_function_that_spark_can_not_import_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(Refused, match=f"^Output: transform {why}\n") as refused:
        Output(name="a", transform=function, sink=Delta())
    assert "write it with def in a module next to the declarations" in refused.value.hint
