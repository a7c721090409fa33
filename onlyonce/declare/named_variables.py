"""Finds the environment variables that a declaration names for its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from onlyonce.declare.outputs.sent import CustomSink
from onlyonce.declare.sources.message_formats import FROM_ENVIRONMENT
from onlyonce.declare.sources.ranges import Custom

OPTIONS = frozenset({"connection", "authorization", "secret"})
"""The options whose value is the name of a variable."""


def named_variables(declared: Any) -> frozenset[str]:
    """Return the variables that a pipeline, a source or a sink names: by an option for it, by 'env:NAME', or to a class
    of the user's own."""
    return frozenset(_found(declared))


def _found(value: Any, option: str = "", own: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if option in OPTIONS:
            yield value
        elif value.startswith(FROM_ENVIRONMENT):
            yield value.removeprefix(FROM_ENVIRONMENT)
        elif own and re.fullmatch(r"[A-Z][A-Z0-9_]*", value):  # such a class knows itself what it does with a string
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _found(inner, own=own)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _found(inner, own=own)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _found(getattr(value, one.name), one.name, isinstance(value, Custom | CustomSink))
