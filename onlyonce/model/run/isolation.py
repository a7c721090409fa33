"""An output that fails does not stop the others.

Decides which error a run ends with when some outputs have failed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from onlyonce.model.errors import InvariantBroken, OnlyonceError, Refused


def ends_with(failures: Mapping[str, BaseException]) -> BaseException:
    """The error of the first output that failed, which then names all that did, and says that the others went on."""
    first, *others = failures
    error = failures[first]
    told = f"output {first} stands still" + "".join(
        f"; so does {name}: {first_line(failures[name])}" for name in others
    )
    if isinstance(error, OnlyonceError):
        data = "; ".join(part for part in (error.data, told) if part)
        return type(error)(error.what, data=data, hint=error.hint)
    error.add_note(told)
    return error


def refusal(wrong: Mapping[str, BaseException]) -> BaseException:
    """Return the error of a check that no output passes: the only one as it is, or the first, which then names the
    others."""
    return ends_with(wrong) if len(wrong) > 1 else next(iter(wrong.values()))


def for_good(error: BaseException) -> bool:
    """Whether the same output would fail of it again, until a person has acted."""
    return isinstance(error, (Refused, InvariantBroken))


def cause_of(failures: Mapping[str, BaseException]) -> BaseException:
    """What a long run ends with when none of its outputs is left: the first that the same command may mend, since a
    supervisor then starts it again; else the first."""
    first = next((name for name in failures if not for_good(failures[name])), next(iter(failures)))
    return ends_with({first: failures[first], **failures})


def first_line(error: BaseException) -> str:
    """An error in a line of a log or a row."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
