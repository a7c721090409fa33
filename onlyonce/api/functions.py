"""Check that a function takes what its output passes to it, and find the schema of a processor's state.

A function gets the rows, and each lookup by its name. Errors name the line of the function or class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from onlyonce.api import ddl
from onlyonce.api.outputs import Output
from onlyonce.core import errors
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.near_names import did_you_mean, near

NOTHING = "nothing was read or written"


def check_parameters(output: Output, function: Callable[..., Any]) -> None:
    """Raise Refused for a lookup that is not a parameter, and for a required parameter that gets no value."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):  # built in C: it has no readable signature
        return
    given = [lookup.name for lookup in output.lookups]
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    where = f"{at}: " if (at := errors.origin_of_function(function)) else ""
    for name in given:
        if name not in named and not takes_all:
            raise Refused(
                f"{where}output {output.name}: {output.made_by} has no parameter {name!r} for the lookup of that name",
                data=NOTHING,
                hint=f"{did_you_mean(near(name, named))}def {function.__name__}(rows, {', '.join(given)})",
            )
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.name in named
        if needed and parameter.name not in given:
            has = f"the output has the lookups: {', '.join(given)}" if given else "the output has no lookups"
            raise Refused(
                f"{where}output {output.name}: {output.made_by} takes {parameter.name!r}, which nothing is given to",
                data=NOTHING,
                hint=f"{has}. Take the parameter out, or declare a lookup: "
                f"lookups=[Lookup(name={parameter.name!r}, table=Delta(path=…), keys=…)]",
            )


def check_reject(output: Output, function: Callable[..., Any]) -> None:
    """Raise Refused for a function for rejections that needs more than the rows."""
    try:
        more = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):  # built in C: it has no readable signature
        return
    where = f"{at}: " if (at := errors.origin_of_function(function)) else ""
    for parameter in more:
        if parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            raise Refused(
                f"{where}output {output.name}: {output.reject} takes {parameter.name!r}, which nothing is given "
                "to: it gets the rows alone",
                data=NOTHING,
                hint="what a lookup decides is a result of its own: return a dict of DataFrames from the transform",
            )


# The schema of a processor's state: its `init` is called with a handle that only notes the requested state.
#
# The schema is part of the fingerprint. Spark allows requests for state in `init` only. This imports the user's module,
# and so Spark.


def made_processor(name: str, of: str, processor: Any) -> Any:
    """Return a processor of the user's class; `name` is the class as it is declared.

    `of` names the declaration in errors. Raise Refused for a class that is not a processor.
    """
    where = f"{at}: " if (at := errors.origin_of_function(processor)) else ""
    if not (isinstance(processor, type) and _is_processor(processor)):
        raise Refused(
            f"{where}{of}: {name} is not a class of a StatefulProcessor",
            data=NOTHING,
            hint="class Silence(StatefulProcessor): …, from pyspark.sql.streaming",
        )
    try:
        return processor()
    except OnlyonceError:
        raise
    except Exception as error:  # the class is the user's and may raise anything
        raise Refused(
            f"{where}{of}: {name} can't be made: {type(error).__name__}: {error}",
            data=NOTHING,
            hint="it is made without arguments, and has all its methods: init, handleInputRows, close",
        ) from error


def described_state(name: str, of: str, processor: Any) -> str:
    """Return the state as text, one line for each variable by its name. Raise Refused."""
    where = f"{at}: " if (at := errors.origin_of_function(processor)) else ""
    made, noted = made_processor(name, of, processor), _Noted(f"{where}{of}: {name}")
    try:
        made.init(noted)
    except OnlyonceError:
        raise
    except Exception as error:  # the class is the user's and may raise anything
        raise Refused(
            f"{where}{of}: the init of {name} fails where it is only asked for its state: "
            f"{type(error).__name__}: {error}",
            data=NOTHING,
            hint="let it take its state from the handle (getValueState, getListState, getMapState) and do no more",
        ) from error
    return "\n".join(noted.state[key] for key in sorted(noted.state))


def _is_processor(kind: type) -> bool:
    """Return whether a class is a processor, by the names of its bases: DAG files load declarations without Spark."""
    return any(base.__name__ == "StatefulProcessor" and base.__module__.startswith("pyspark.") for base in kind.__mro__)


class _Noted:
    """A handle for `init` that notes the requested state."""

    def __init__(self, of: str) -> None:
        self.state: dict[str, str] = {}
        self._of = of

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._note(stateName, f"value {stateName}: {_text(schema)}", ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._note(stateName, f"list {stateName}: {_text(schema)}", ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> None:
        self._note(stateName, f"map {stateName}: {_text(userKeySchema)} to {_text(valueSchema)}", ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        self.state.pop(stateName, None)

    def _note(self, name: str, told: str, ttl: int | None) -> None:
        if ttl is not None:
            raise Refused(
                f"{self._of}: the state {name!r} has a time to live, which goes by the clock: a batch that is "
                "tried again would find another state",
                data=NOTHING,
                hint="leave ttlDurationMs out, and clear the state in a timer in event time",
            )
        self.state[name] = told


def _text(schema: Any) -> str:
    if isinstance(schema, str):
        return ", ".join(f"{name} {kind}" for name, kind in ddl.types(schema).items())
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
