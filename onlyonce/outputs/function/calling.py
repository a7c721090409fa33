"""Calls a user's function, and tells an error of its code at the function's own line.

Who calls it: `results`, `rejecting`. Errors: those of `function_errors.of_code`; any other error as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException

from onlyonce.model import function_errors, origin
from onlyonce.session import lines

CODE_ERRORS = (
    AnalysisException,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)
"""What a function raises whose code is wrong, as it builds its plan: a repeat raises it again."""


@contextmanager
def calling(whose: str, function: Callable[..., Any], columns: list[str]) -> Iterator[None]:
    """Inside, what is wrong in the function's code is told as the user's error. `columns` are those that it gets."""
    try:
        with lines.known():
            yield
    except CODE_ERRORS as error:
        raise function_errors.of_code(whose, error, columns, origin.of_function(function)) from error
