"""Import what a declaration or setting names as 'module:name', and find the environment variables that it names.

A name stands for a function, a writer, or a class of the user's own. Importing runs the user's module. The caller
checks what kind of object the name stands for.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from onlyonce.api import syntax
from onlyonce.api.declaration import declared_at
from onlyonce.api.messages import FROM_ENVIRONMENT
from onlyonce.core import errors
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.near_names import did_you_mean, near

SOURCES, SINKS = "onlyonce.sources", "onlyonce.sinks"
"""The groups of entry points by which a package gives its readers and its sinks a name."""
OWN = re.compile(r"[\w.]+:\w+|[\w-]+")
"""'module:Class', or the name of an entry point."""


def own_class(text: str, group: str, **words: str) -> str:
    """Return the 'module:Class' that a package has registered under a name; a 'module:Class' as it is.

    Raise Refused if no installed package has that name, or if two have.
    """
    if ":" in text:
        return text
    found = {one.value for one in entry_points(group=group, name=text)}
    if len(found) == 1:
        return found.pop()
    known = sorted({one.name for one in entry_points(group=group)})
    what = f"several packages have {text!r}: {', '.join(sorted(found))}" if found else f"no package has {text!r}"
    words["hint"] = (
        f"write 'module:Class', or a name that a package has in the entry points {group} "
        f"({', '.join(known) or 'none is installed'})"
    )
    raise Refused(f"{what} among the entry points {group}", **words)


def named(text: str, subject: str, *, made: object = None, option: str | None = None, **words: str) -> Any:
    """Return what 'module:name' stands for.

    Raise Refused, "`subject` does not exist: …", with the caller's `data` and `hint`, and with the line of the
    declaration `made`, or of its option, that has the name. If the module itself fails, the error names the line in it.
    """
    try:
        return pkgutil.resolve_name(text)
    except OnlyonceError:
        raise
    except Exception as error:  # the module is the user's and may raise anything on import
        if place := errors.origin_in_python(error):
            raise _not_importable(place, subject, error, words) from error
        module, _, name = text.partition(":")
        there = vars(sys.modules[module]) if module in sys.modules else {}
        names = [one for one, value in there.items() if getattr(value, "__module__", None) == module] or [*there]
        guess = _similar_module(module) if isinstance(error, ModuleNotFoundError) else _guess(module, name, names)
        words["hint"] = guess + words.get("hint", "")
        raise Refused(f"{declared_at(made, option)}{subject} does not exist: {error}", **words) from error


def _not_importable(place: str, subject: str, error: Exception, words: Mapping[str, str]) -> Refused:
    """Return the error for a module of the user's that fails at this line as it is imported."""
    hint = "correct that line; the module must be importable"
    if isinstance(error, ModuleNotFoundError):
        hint = errors.missing_module(error)
    place, told, hint = syntax.explained_in_file(error) or (place, str(error), hint)
    what = f"{place}: {subject} can't be imported: {type(error).__name__}: {told}"
    return Refused(what, **{**words, "hint": hint})


def needs_session(error: OnlyonceError) -> bool:
    """Return whether a module could not be imported only because there is no Spark session yet.

    It makes Columns or functions of Spark as it is imported (`@F.udf("long")`). PySpark itself has raised the error.
    """
    cause = error.__cause__
    if not isinstance(cause, AssertionError | RuntimeError):
        return False
    frames = traceback.extract_tb(cause.__traceback__)
    return bool(frames) and "/pyspark/" in frames[-1].filename


def check_written(text: str, subject: str, *, made: object = None, option: str | None = None, **words: str) -> None:
    """Raise Refused, as `named`, if a name is not defined in its module's text.

    The module is not imported, so neither is Spark.

    The packages above the module are imported. A module without Python text passes, and a module that passes may
    still fail on import.
    """
    module, _, name = text.partition(":")
    try:
        found = importlib.util.find_spec(module)
    except OnlyonceError:
        raise
    except Exception as error:  # a package above is the user's and may raise anything on import
        if place := errors.origin_in_python(error):
            raise _not_importable(place, subject, error, words) from error
        found = None
    if found is None:
        hint = _similar_module(module) + words.get("hint", "")
        what = f"{declared_at(made, option)}{subject} does not exist: no module {module!r}"
        raise Refused(what, **words | {"hint": hint})
    if not found.origin or not found.origin.endswith(".py"):
        return
    try:
        written = _names(Path(found.origin).read_bytes())
    except SyntaxError as error:
        raise _not_importable(f"{found.origin}:{error.lineno or 1}", subject, error, words) from error
    if name not in written and "*" not in written:
        hint = _guess(module, name, written) + words.get("hint", "")
        what = f"{declared_at(made, option)}{subject} does not exist: {found.origin} has no {name!r}"
        raise Refused(what, **words | {"hint": hint})


def _names(text: bytes) -> set[str]:
    """Return the names that a module's text binds, at any depth. Raise SyntaxError."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


MOST_LISTED = 8


def _guess(module: str, name: str, names: Collection[str]) -> str:
    close = near(name, names)
    known = sorted(one for one in names if not one.startswith("_") and one == one.lower())
    if close is None and 0 < len(known) <= MOST_LISTED:
        return f"{module} has: {', '.join(known)}; "
    return did_you_mean(close and f"{module}:{close}")


def _similar_module(module: str) -> str:
    """Return the beginning of a hint that proposes a module: the first part that does not exist is corrected."""
    parts = module.split(".")
    places: Iterable[str] | None = None  # of the top level
    for at, part in enumerate(parts):
        known = {one.name for one in pkgutil.iter_modules(places)} - sys.stdlib_module_names
        if part not in known:
            close = near(part, known)
            return did_you_mean(close and ".".join([*parts[:at], close, *parts[at + 1 :]]))
        try:
            places = getattr(importlib.import_module(".".join(parts[: at + 1])), "__path__", ())
        except Exception:  # the module is the user's and may raise anything on import
            return ""
    return ""


# The environment variables that a declaration names for its secrets.


OPTIONS = frozenset({"connection", "authorization", "secret"})
"""The options whose value is the name of a variable."""


def named_variables(declared: Any) -> frozenset[str]:
    """Return the variables that a pipeline, source or sink names.

    It names them by an option for a variable, by 'env:NAME', or in an option of the user's own class."""
    return frozenset(_found(declared))


def _found(value: Any, option: str = "", own: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if option in OPTIONS:
            yield value
        elif value.startswith(FROM_ENVIRONMENT):
            yield value.removeprefix(FROM_ENVIRONMENT)
        elif own and re.fullmatch(r"[A-Z][A-Z0-9_]*", value):  # the user's class may read it as a variable
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _found(inner, own=own)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _found(inner, own=own)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _found(getattr(value, one.name), one.name, getattr(value, "is_own", False))
