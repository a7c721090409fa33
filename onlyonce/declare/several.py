"""A field that is given one or several, and read as a tuple: `record_id="id"`, `record_id=("carrier", "flight")`,
`keys=["shop"]`.

For type checkers it is a descriptor: what may be given is another type than what is read. `declaration` makes the
tuple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

T = TypeVar("T")

if TYPE_CHECKING:

    class Several(Generic[T]):
        """One T, or a list or tuple of them; read as a tuple."""

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
    """Whether a dataclass's field, by its annotation as text, is one of these."""
    return str(annotation).startswith("Several[")


def as_tuple(given: Any) -> Any:
    """One name, or one output, where several may be given: a text is no row of letters."""
    if given is None or isinstance(given, tuple):
        return given
    return tuple(given) if isinstance(given, list) else (given,)
