"""Read and change the process's environment. Standard library only.

`onlyonce.settings` reads the platform's own settings. This module is for other variables. A declaration names some for
its secrets. Spark, Airflow and emulators have their own. A process that we start inherits its environment.

A variable that is empty counts as one that is not set. Three other modules use `os.environ` by themselves: fail-points,
which import nothing; the suite that arms them; and the check that runs before there is an environment of Python.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


def variable(name: str) -> str | None:
    """Return the value of a variable; None if it is not set or empty. It may be a secret: never log it."""
    return os.environ.get(name) or None


def why_missing(name: str) -> str:
    """Return why `variable` has no value: "is not set", or "is set, but empty"."""
    return "is set, but empty" if name in os.environ else "is not set"


def variables(names: Iterable[str]) -> tuple[str | None, ...]:
    """Return the value of each variable, in the order of their names."""
    return tuple(map(variable, names))


def names_of_url(url: str) -> list[str]:
    """Return the variables that have this URL, whichever name each gives to the scheme."""
    rest = url.partition("://")[2]
    return [name for name, value in os.environ.items() if rest and value.partition("://")[2] == rest]


def inherited() -> dict[str, str]:
    """Return all variables of this process, to hand to a process that it starts."""
    return dict(os.environ)


def set_missing(name: str, value: str) -> None:
    """Set a variable for this process and its children, if it is not set or empty."""
    if variable(name) is None:
        os.environ[name] = value


def remove(name: str) -> None:
    """Remove a variable from this process and its children."""
    os.environ.pop(name, None)


@contextmanager
def within(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables inside the block, and restore them after it. What is started inside inherits them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def advice_if_not_set(error: KeyError) -> str:
    """Return what to do about an environment variable that a user's `os.environ[…]` asks for; empty for another key."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].name != "__getitem__" or frames[-1].filename not in (os.__file__, "<frozen os>"):
        return ""
    name = error.args[0]
    return (
        f"set the environment variable {name} wherever onlyonce and Airflow run; or give a default: "
        f"os.environ.get({name!r}, …)"
    )
