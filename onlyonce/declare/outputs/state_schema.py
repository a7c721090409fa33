"""Finds the schema of a processor's state: calls its `init` with a handle that only notes what it is asked for.

Who calls it: `loading`, for the fingerprint. Imports the user's module, so Spark too. Errors: Refused, at the line of
the class. Not promised: state that `init` does not ask for. Spark lets it be asked for there only.
"""

from __future__ import annotations

from typing import Any

from onlyonce.declare import ddl
from onlyonce.model import origin
from onlyonce.model.errors import OnlyonceError, Refused

NOTHING_DONE = "nothing was read or written"


def made(name: str, of: str, processor: Any) -> Any:
    """A processor of that class, `name` as it is declared.

    `of`: what says whose it is. Raises Refused for a class that is none.
    """
    at = f"{where}: " if (where := origin.of_function(processor)) else ""
    if not (isinstance(processor, type) and _is_processor(processor)):
        raise Refused(
            f"{at}{of}: {name} is no class of a StatefulProcessor",
            data=NOTHING_DONE,
            hint="class Silence(StatefulProcessor): …, from pyspark.sql.streaming",
        )
    try:
        return processor()
    except OnlyonceError:
        raise
    except Exception as error:  # the class is the user's: whatever it raises
        raise Refused(
            f"{at}{of}: {name} can't be made: {type(error).__name__}: {error}",
            data=NOTHING_DONE,
            hint="it is made without arguments, and has all its methods: init, handleInputRows, close",
        ) from error


def described(name: str, of: str, processor: Any) -> str:
    """The state as text, one line for each variable by its name. Raises Refused."""
    at = f"{where}: " if (where := origin.of_function(processor)) else ""
    one, noted = made(name, of, processor), _Noted(f"{at}{of}: {name}")
    try:
        one.init(noted)
    except OnlyonceError:
        raise
    except Exception as error:  # the class is the user's: whatever it raises
        raise Refused(
            f"{at}{of}: the init of {name} fails where it is only asked for its state: {type(error).__name__}: {error}",
            data=NOTHING_DONE,
            hint="let it take its state from the handle (getValueState, getListState, getMapState) and do no more",
        ) from error
    return "\n".join(noted.state[key] for key in sorted(noted.state))


def _is_processor(kind: type) -> bool:
    """By the names of its bases: DAG files, which load declarations, don't import Spark."""
    return any(base.__name__ == "StatefulProcessor" and base.__module__.startswith("pyspark.") for base in kind.__mro__)


class _Noted:
    """A handle as `init` gets one."""

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
                data=NOTHING_DONE,
                hint="leave ttlDurationMs out, and clear the state in a timer in event time",
            )
        self.state[name] = told


def _text(schema: Any) -> str:
    if isinstance(schema, str):
        return ", ".join(f"{name} {kind}" for name, kind in ddl.types(schema).items())
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
