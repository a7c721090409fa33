"""The process's environment. This is the only module of the package that reads or changes it. Standard library only.

The platform's own settings are read by `onlyonce.settings`. This module is for the variables of others: those that a
declaration names for its secrets, those of Spark, Airflow and emulators, and all that a process which we start
inherits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def variable(name: str) -> str | None:
    """The value of a variable; None where it is not set or empty. It may be a secret: never log it."""
    return os.environ.get(name) or None


def inherited() -> dict[str, str]:
    """All variables of this process, to hand to one that it starts."""
    return dict(os.environ)


def set_missing(name: str, value: str) -> None:
    """Set a variable for this process, and what it starts, where it is not set."""
    os.environ.setdefault(name, value)


def remove(name: str) -> None:
    """Take a variable out of this process, and what it starts."""
    os.environ.pop(name, None)


@contextmanager
def within(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables are set inside, and as before outside. What is started inside inherits them."""
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
