"""What every declaration does: it refuses an unknown option or value, and names the most similar known one.

A field may take one value or several, and is read as a tuple: `record_id="id"`, `record_id=("carrier", "flight")`,
`keys=["shop"]`. For type checkers such a field is a descriptor: it is set with another type than it is read with.
`declaration` makes the tuple.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform, overload

from onlyonce.core import errors
from onlyonce.core.durations import refuse_other_types
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import choose

T = TypeVar("T")

if TYPE_CHECKING:

    class Several(Generic[T]):
        """One T, or a list or tuple of T; read as a tuple."""

        @overload
        def __get__(self, made: None, of: type) -> Several[T]: ...
        @overload
        def __get__(self, made: object, of: type) -> tuple[T, ...]: ...
        def __get__(self, made: object | None, of: type) -> Several[T] | tuple[T, ...]: ...
        def __set__(self, made: object, given: T | list[T] | tuple[T, ...]) -> None: ...

    NONE: Any
else:
    Several = tuple
    NONE = ()
"""NONE is the default of a field that may be left out."""


def is_several(annotation: object) -> bool:
    """Return whether a dataclass's field takes several values, by its annotation as a string."""
    return str(annotation).startswith("Several[")


def as_tuple(given: Any) -> Any:
    """Return one value, or several, as a tuple. A string is one value, not a sequence of characters."""
    if given is None or isinstance(given, tuple):
        return given
    return tuple(given) if isinstance(given, list) else (given,)


# The decorator and the checks of values.


AT = "_declared_at"
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def declaration(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass that answers an unknown option with "did you mean"."""
    made: Any = dataclass(frozen=True, kw_only=True)(cls)
    known = [f.name for f in fields(made)]
    several = [f.name for f in fields(made) if is_several(f.type)]
    required = [f.name for f in fields(made) if f.init and f.default is MISSING and f.default_factory is MISSING]
    plain: Callable[..., None] = made.__init__

    def checked(self: Any, *unnamed: Any, **options: Any) -> None:
        if unnamed:
            raise Refused(
                f"{cls.__name__}: a value without the name of its option: {str(unnamed[0])[:60]!r}",
                hint=f"write the name before it: {known[0]}=…; choose one of: {', '.join(known)}",
            )
        for option in options.keys() - set(known):
            raise Refused(f"{cls.__name__}: unknown option {option!r}", hint=choose(option, known))
        refuse_other_types(cls, options)
        # Where the declaration is written, for later errors. It is not a field, so two equal declarations stay equal.
        object.__setattr__(self, AT, errors.origin_of_caller(sys._getframe(1)))
        if missing := [name for name in required if name not in options]:
            whose = f" {options['name']!r}" if options.get("name") else ""
            listed = " and ".join(f"`{name}`" for name in missing)
            raise Refused(f"{cls.__name__}{whose} lacks {listed}", hint=f"add {missing[0]}=…, which has no default")
        plain(self, **{name: as_tuple(value) if name in several else value for name, value in options.items()})

    made.__init__ = checked
    return made  # type: ignore[no-any-return]


def declared_at(made: Any) -> str:
    """Return where a declaration is written, as 'file:line: '; empty if no file of the user's has made it."""
    at = getattr(made, AT, None)
    return f"{at}: " if at else ""


def unknown(kind: str, name: str, known: list[str]) -> Refused:
    """Return a Refused for an unknown name, with the most similar known one."""
    hint = choose(name, known) if known else f"no {kind} is declared"
    return Refused(f"no {kind} {name!r}", data="nothing was read or written", hint=hint)


def check_name(kind: str, name: str) -> None:
    """Raise Refused for a name that can't be used in SQL, in a path and in a DAG's id."""
    if not NAME.fullmatch(name):
        raise Refused(
            f"{kind} name {name!r} can't be one",
            hint="a word in lower case: letters, digits, _; at most 41; a letter first",
        )


def check_one_of(whose: str, option: str, value: str, known: tuple[str, ...]) -> None:
    """Raise Refused for a value that the option does not have, with the most similar one."""
    if value not in known:
        raise Refused(f"{whose}: {option}={value!r}", hint=choose(str(value), known))
