"""Behaviour of all declarations: they refuse an unknown option or value, and name the most similar known one.

A field may take one value or several, and is read as a tuple: `record_id="id"`, `record_id=("carrier", "flight")`,
`keys=["shop"]`. A field that names a function also accepts the function; reading the field returns the import path. For
type checkers such a field is a descriptor: it is set with another type than it is read with. `declaration` makes the
tuple or path.

The types of values are checked from the annotations.
"""

from __future__ import annotations

import os
import re
import sys
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from onlyonce.core import durations, errors
from onlyonce.core.durations import refuse_other_types
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import choose, did_you_mean, near

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

    class Named:
        """A function or class, or its import path 'module:name'; read as the import path."""

        @overload
        def __get__(self, made: None, of: type) -> Named: ...
        @overload
        def __get__(self, made: object, of: type) -> str: ...
        def __get__(self, made: object | None, of: type) -> Named | str: ...
        def __set__(self, made: object, given: str | Callable[..., Any]) -> None: ...

    NONE: Any
    NO_FUNCTION: Any
else:
    Several = tuple
    Named = str
    NONE = ()
    NO_FUNCTION = ""
"""NONE and NO_FUNCTION are the defaults of fields that may be left out."""


def is_several(annotation: object) -> bool:
    """Return whether a dataclass's field takes several values, by its annotation as a string."""
    return str(annotation).startswith("Several[")


def as_tuple(given: Any) -> Any:
    """Return one value, or several, as a tuple. A string is one value, not a sequence of characters."""
    if given is None or isinstance(given, tuple):
        return given
    return tuple(given) if isinstance(given, list) else (given,)


def import_path(owner: str, option: str, given: Any) -> Any:
    """Return 'module:name' of a function or class, and any other value as it is.

    Raise Refused if a Spark process can't import it by that name.
    """
    if not callable(given):
        return given
    name, module = getattr(given, "__qualname__", ""), getattr(given, "__module__", None)
    if name and errors.of_python(given):
        raise not_of_python(f"{owner}: {option}={name}: it")
    why = (
        "is a lambda, which has no name"
        if "<lambda>" in name
        else f"is {name}, which is defined inside another function or class"
        if "." in name
        else "has no name and module"
        if not name or not module
        else f"is {name}, which is defined in the file of the declarations"
        if IN_DECLARATIONS in module or module == "__main__"
        else None
    )
    if why:
        raise Refused(
            f"{owner}: {option} {why}",
            hint="Spark's processes import it by its name: write it with def in a module next to the declarations, and "
            f"pass the function, or its import path: {option}='module:function'",
        )
    return f"{module}:{name}"


def not_of_python(what: str) -> Refused:
    """Return the refusal of a function or class of Python's own library, which `what` names."""
    return Refused(
        f"{what} is part of Python's own library, and not made for records",
        data="nothing was read or written",
        hint="write your own in a module next to the declarations, and pass the function or class, or its import "
        "path 'module:name'",
    )


def not_a_path(what: str, option: str, *, kind: str = "function") -> Refused:
    """Return the refusal of a value that is not the import path of a function (or class); `what` has the value."""
    example = "transforms:per_hour' for def per_hour" if kind == "function" else "transforms:Silence' for class Silence"
    dotted = re.search(r"'((?:\w+\.)+)(\w+)'$", what)
    meant = f"did you mean '{dotted[1][:-1]}:{dotted[2]}'? " if dotted else ""
    return Refused(
        f"{what} is not of the form 'module:{kind}'",
        hint=meant.strip()
        or f"such as {option}='{example} in transforms.py; or import the {kind} and give it without quotes",
    )


# The decorator and the checks of values.


AT, GIVEN = "_declared_at", "_given_options"
IN_DECLARATIONS = "onlyonce_pipelines_"
"""Part of the name of the module that a file of declarations is loaded as."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def declaration(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass that answers an unknown option with "did you mean"."""
    made: Any = dataclass(frozen=True, kw_only=True)(cls)
    known = [f.name for f in fields(made)]
    several = [f.name for f in fields(made) if is_several(f.type)]
    named = [f.name for f in fields(made) if f.type == "Named"]
    required = [f.name for f in fields(made) if f.init and f.default is MISSING and f.default_factory is MISSING]
    plain: Callable[..., None] = made.__init__

    @wraps(plain)  # so that an editor shows the options
    def checked(self: Any, *unnamed: Any, **options: Any) -> None:
        if unnamed:
            raise Refused(
                f"{cls.__name__}: a value without the name of its option: {str(unnamed[0])[:60]!r}",
                hint=f"write the name of its option before it, such as {known[0]}=…",
            )
        # Where the declaration is written, and with which options, for later messages. These are not fields, so two
        # equal declarations stay equal.
        object.__setattr__(self, AT, errors.origin_of_caller(sys._getframe(1)))
        object.__setattr__(self, GIVEN, frozenset(options))
        if others := [option for option in options if option not in known]:
            with at_option(self, others[0]):
                raise _unknown_options(cls.__name__, others, known)
        for option, value in options.items():
            with at_option(self, option):
                options[option] = import_path(cls.__name__, option, value) if option in named else value
                refuse_other_types(cls, {option: options[option]})
                _refuse_other_classes(self, option, options[option], several=option in several)
                if option in VARIABLES and options[option] is not None:
                    _refuse_secret(cls.__name__, option, options[option])
        if missing := [name for name in required if name not in options]:
            whose = f" {options['name']!r}" if options.get("name") else ""
            listed = " and ".join(f"`{name}`" for name in missing)
            means = f": {MEANS[missing[0]]}" if missing[0] in MEANS else ""
            value = EXAMPLES.get(missing[0], "…")
            raise Refused(
                f"{cls.__name__}{whose} lacks {listed}", hint=f"add {missing[0]}={value}, which has no default{means}"
            )
        try:
            plain(self, **{name: as_tuple(value) if name in several else value for name, value in options.items()})
        except Refused as error:
            if named_option := _named_option(error.what, options):
                error.at = error.at or declared_at(self, named_option).removesuffix(": ") or None
            raise

    made.__init__ = checked
    OPTIONS[cls.__name__] = known
    if getattr(cls, "is_leaf", False):
        LEAVES.add(cls.__name__)
    return made  # type: ignore[no-any-return]


VARIABLES = ("connection", "authorization", "secret")
"""The options that name an environment variable, whose value may be a secret."""


def _refuse_secret(whose: str, option: str, given: str) -> None:
    """Raise Refused for what can't be the name of a variable. It may be the secret itself, so no message repeats it."""
    if re.fullmatch(r"[\w.-]+", given) and not given.startswith("whsec_"):
        return
    what = "is a URL" if "://" in given else "is not the name of an environment variable"
    raise Refused(
        f"{whose}: {option} {what}",
        data="nothing was read or written",
        hint=f"write the value into an environment variable where the driver runs, such as SHOP_{option.upper()}, and "
        f"name it: {option}='SHOP_{option.upper()}'. A file of declarations must not have a password",
    )


MEANS = {
    "record_id": "the columns whose values identify a record, or () for its place in the source: then a record that "
    "is delivered again in another file is kept again",
    "keys": "the columns that identify a row",
}
"""The meaning of a required option, for the hint of an error that finds no value."""
EXAMPLES = {
    "schema": "'id string, at timestamp'",
    "event_time": "'at'",
    "table": "'results.name_of_the_table'",
    "topic": "'orders'",
    "keys": "'id'",
    "servers": "'localhost:9092'",
}
"""A value of an option that takes a string, for the hint of an error that finds none."""
OTHER_OPTIONS: dict[str, tuple[str, ...]] = {
    word: ours
    for words, ours in {
        "sep separator": ("delimiter",),
        "charset": ("encoding",),
        "nullvalue nullvalues navalues nullstring nullword": ("null",),
        "folder directory dir location path tablepath": ("inbox", "path", "table"),
        "tablename dbtable": ("table",),
        "url uri": ("registry", "connection", "servers", "path"),
        "servers brokers bootstrapservers": ("servers", "connection"),
        "subscribe subscribepattern topics topicpattern": ("topic",),
        "groupid": ("consumer_group",),
        "startingoffsets startingtimestamp startingversion": ("start",),
        "readchangefeed readchangedata": ("changes",),
        "maxfilespertrigger": ("max_files_a_batch",),
        "maxoffsetspertrigger": ("max_offsets_a_batch",),
        "mode outputmode writemode savemode": ("write", "panes"),
        "primarykey uniquekey recordkey key id ids idcolumn": ("record_id", "keys"),
        "mergekeys": ("keys",),
        "watermark delay delaythreshold lateness allowedlateness": ("watermark_delay",),
        "time timestamp timecolumn timestampcolumn": ("event_time",),
        "function func fn": ("transform",),
    }.items()
    for word in words.split()
}
"""The options of other libraries, in small letters without '_', with ours that mean the same, the likeliest first."""
NO_OPTIONS = {
    "trigger": "leave it out: `onlyonce run` or a DAG's schedule says when a pipeline runs",
    "checkpoint": "leave it out: the checkpoints are in the platform's home, ONLYONCE_HOME",
}
NO_OPTIONS["partitionby"] = "leave it out: rows of windows are partitioned by their date, in the column window_date"
NO_OPTIONS["checkpointlocation"] = NO_OPTIONS["checkpoint"]
"""The options of other libraries that none of ours means, with the hint."""
EXPLAINED = {
    "connection": " It names the environment variable that holds the address, such as connection='SHOP_ADDRESS'",
    "panes": " It says when the rows of a window are written. How they are is an option of the sink: write='upsert'",
    "topic": " It names one topic: a pipeline reads several by sources={'web': Kafka(topic='web', …), 'shop': …}, and "
    "writes to several by as many outputs",
}
"""The end of the hint that names an option."""
OPTIONS: dict[str, list[str]] = {}
"""The options of each class of declarations, by its name."""
LEAVES: set[str] = set()
"""The names of the classes that are sinks and sources."""


def _unknown_options(whose: str, others: list[str], known: list[str]) -> Refused:
    """Return the refusal of options that a class does not have, each with its hint."""
    hints = [_known_option(option, known, leaf=whose in LEAVES) for option in others]
    if len(others) == 1:
        return Refused(f"{whose}: unknown option {others[0]!r}", hint=hints[0])
    each = ". ".join(f"{option}: {hint}" for option, hint in zip(others, hints, strict=True)).replace("?. ", "? ")
    return Refused(f"{whose}: unknown options {', '.join(map(repr, others))}", hint=each)


def _known_option(option: str, known: list[str], *, leaf: bool) -> str:
    """Return the hint for an unknown option: the option that is meant, or the class that has it.

    leaf   the option was given to a sink or source: it can't be meant for another one of these
    """
    word = option.replace("_", "").lower()
    meant = OTHER_OPTIONS.get(word, ())
    if found := next((one for one in meant if one in known), None):
        return f"{did_you_mean(found).strip()}{EXPLAINED.get(found, '')}"
    if word in NO_OPTIONS:
        return NO_OPTIONS[word]
    everywhere = {one for options in OPTIONS.values() for one in options}
    for one in () if near(option, known) else (option, *meant, "" if leaf else near(option, everywhere, 0.8)):
        if owners := sorted(
            name for name, options in OPTIONS.items() if one in options and not (leaf and name in LEAVES)
        ):
            more = " and others" if len(owners) > _MOST_OWNERS else ""
            if one == "schema" and "table" in known:
                return "write it before the name of the table: table='schema.table'"
            return f"{one!r} is an option of {', '.join(owners[:_MOST_OWNERS])}{more}: give it there"
    return choose(option, known)


_MOST_OWNERS = 4


def _refuse_other_classes(declared: Any, option: str, given: Any, *, several: bool) -> None:
    """Raise Refused for the first value whose type is not one of its option's annotation."""
    made: type = type(declared)
    if option not in _allowed(made):
        return
    allowed, names = _allowed(made)[option]
    for value in as_tuple(given) if several and given is not None else (given,):
        if isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)):
            continue
        if value is getattr(made, option, MISSING):  # its default, which `replace` passes on
            continue
        if isinstance(value, type) and issubclass(value, allowed):
            what, hint = "is the class itself", f"write {option}={call_of(value)}"
        else:
            what, hint = f"must be {_listed(names)}", _meant(made, option, value, names)
        refused = Refused(f"{made.__name__}({option}={_short(value)}): {what}", hint=hint)
        if hint == NO_COMMAS and (at := getattr(declared, AT)):
            refused.at = errors.end_of_first(at, made.__name__, option)
        raise refused


def _short(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    plain = value is None or isinstance(value, str | int | float | tuple | list | dict)
    return repr(value) if plain else f"{type(value).__name__}(…)"


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if names[1:] else names[0]


def _meant(made: type, option: str, value: Any, names: tuple[str, ...]) -> str:
    """Return what a value of another type was probably meant to be, as a hint."""
    length = durations.meant(value)
    if "Fixed" in names and length:
        return f"did you mean {option}=Fixed({length})?"
    if names == FUNCTION:
        return f"such as {option}='transforms:name' for a name in transforms.py; or import it, and give it itself"
    if kinds := [name for name in names if name[0].isupper() and name != WORDS[bool]]:
        similar = near(str(value).lower(), [kind.lower() for kind in kinds])
        found = next((kind for kind in kinds if kind.lower() == similar), None)
        if found is None and isinstance(value, str) and {"Delta", "Postgres"} <= {*kinds} and set("./") & {*value}:
            table = f"Delta(path={value!r})" if "/" in value else f"Postgres(table={value!r})"
            return f"did you mean {option}={table}?"
        if found is None and "Fixed" in names:
            return f"for example {option}=Fixed(timedelta(hours=1))"
        kind = found or kinds[0]
        call = _calls(made, option).get(kind, f"{kind}(…)")
        return f"{'did you mean' if found else 'for example'} {option}={call}"
    if "a string" in names and isinstance(value, int | float | os.PathLike):
        return f"for example {option}={str(value)!r}"
    if "a string" in names and isinstance(value, tuple) and all(isinstance(part, str) for part in value) and value:
        return NO_COMMAS
    if value is None and option in EXAMPLES:
        return f"for example {option}={EXAMPLES[option]}"
    if value is None and option in MEANS:
        return f"give {MEANS[option]}"
    leave = ", or leave it out" if hasattr(made, option) else ""
    several = isinstance(value, list | tuple) and option in EXPLAINED
    return f"give {option} as {_listed(names)}{leave}" + (f".{EXPLAINED[option]}" if several else "")


def call_of(made: type) -> str:
    """Return how a class of declarations is called, with the options that it needs: 'Postgres(table=…)'."""
    if not is_dataclass(made):
        return f"{made.__name__}(…)"
    needed = [
        one.name for one in fields(made) if one.init and one.default is MISSING and one.default_factory is MISSING
    ]
    needed += getattr(made, "one_of", ())[:1]
    return f"{made.__name__}({', '.join(f'{name}=…' for name in needed)})"


def _calls(made: type, option: str) -> dict[str, str]:
    """Return how to call each class that an option takes, by its name."""
    return {one.__name__: call_of(one) for one in _classes(get_type_hints(made)[option])}


def _classes(hint: Any) -> Iterator[type]:
    if get_origin(hint) in (Union, UnionType, tuple):
        for part in get_args(hint):
            yield from _classes(part)
    elif isinstance(hint, type) and hint.__module__.startswith("onlyonce."):
        yield hint


@cache
def _allowed(made: type) -> dict[str, tuple[tuple[type, ...], tuple[str, ...]]]:
    """Return the types that each option takes, and what an error calls them.

    Left out: options that take any value, and lengths of time, whose refusal says more.
    """
    hints = get_type_hints(made)
    options = {field.name: field.type for field in fields(made) if field.init}  # type: ignore[arg-type]
    found = {
        option: [(str, FUNCTION[0])] if annotation == "Named" else list(_types(hints[option]))
        for option, annotation in options.items()
    }
    return {
        option: (tuple(kind for kind, _ in types), tuple(dict.fromkeys(name for _, name in types if name)))
        for option, types in found.items()
        if types and timedelta not in (kind for kind, _ in types)
    }


def _types(hint: Any) -> Iterator[tuple[type, str]]:
    """Yield the types of an annotation, each with its name in an error; those of the elements for several."""
    origin = get_origin(hint)
    if hint is Any:
        return
    if origin is Literal:
        yield from ((type(value), repr(value)) for value in get_args(hint))
    elif origin in (Union, UnionType, tuple):
        for part in get_args(hint):
            yield from _types(part)
    elif hint.__module__.startswith("onlyonce."):
        yield hint.__mro__[-2], hint.__name__  # the base of all sinks, for example: a team may have its own
    else:
        kind = origin or hint
        yield kind, WORDS.get(kind, kind.__name__)


NO_COMMAS = "take out the comma behind each of its strings: Python joins strings that only follow one another"
FUNCTION = ("a function or class, or its import path 'module:name'",)
WORDS: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    bool: "True or False",
    datetime: "a datetime",
    dict: "a dict",
    abc.Mapping: "a dict",
    NoneType: "",
}


def declared_at(made: Any, option: str | None = None, position: int | None = None) -> str:
    """Return where a declaration, one of its options, or the character at `position` of an option's string is written:
    'file:line: '.

    Return an empty string if no file of the user's has made it.
    """
    at = getattr(made, AT, None)
    if at is None:
        return ""
    name, line = type(made).__name__, None
    if option and position is not None:
        line = errors.line_in_option(at, name, option, getattr(made, option), position)
    elif option:
        line = errors.lines_of_options(at, name).get(option)
    return f"{at.rpartition(':')[0]}:{line}: " if line else f"{at}: "


def is_left_out(made: Any, option: str) -> bool:
    """Return whether a declaration was written without an option."""
    return option not in getattr(made, GIVEN, (option,))


@contextmanager
def at_option(made: Any, option: str, position: int | None = None) -> Iterator[None]:
    """Let a Refused of the block name the line of an option, or of the character at `position` of its string."""
    try:
        yield
    except Refused as error:
        error.at = error.at or declared_at(made, option, position).removesuffix(": ") or None
        raise


def _named_option(what: str, options: Iterable[str]) -> str | None:
    """Return the first of these options that an error names, apart from the names and values that it quotes."""
    plain = re.sub(r"^(pipeline|output) (?!name )[^ :]+|'[^']*'", "", what)
    found = {one.start(): option for option in options if (one := re.search(rf"\b{option}\b", plain))}
    return found[min(found)] if found else None


def unknown(kind: str, name: str, known: list[str]) -> Refused:
    """Return a Refused for an unknown name, with the most similar known one."""
    hint = choose(name, known) if known else f"no {kind} is declared"
    if name.endswith(".py"):
        hint = f"a file is named as --pipelines {name}; the name of a {kind} is written alone: {', '.join(known)}"
    return Refused(f"no {kind} {name!r}", data="nothing was read or written", hint=hint)


def _as_name(given: str) -> str | None:
    """Return a name that is like the given one; None if there is none."""
    found = re.sub(r"[^a-z0-9]+", "_", given.lower()).strip("_")
    return found if NAME.fullmatch(found) else None


def check_name(kind: str, name: str) -> None:
    """Raise Refused for a name that can't be used in SQL, in a path and in a DAG's id."""
    if not NAME.fullmatch(name):
        raise Refused(
            f"{kind} name {name!r} can't be one",
            hint=f"{did_you_mean(_as_name(name))}a word in lower case: letters, digits, _; at most 41; a letter first",
        )


def check_one_of(whose: str, option: str, value: str, known: tuple[str, ...], *others: str) -> None:
    """Raise Refused for a value that the option does not have, with the most similar one.

    `others`: what else the option takes, as it is written.
    """
    if value not in known:
        raise Refused(
            f"{whose}: {option}={value!r} is not a value of this option",
            hint=f"{did_you_mean(near(str(value), known))}choose one of: {', '.join([*map(repr, known), *others])}",
        )
