"""What a declaration or setting names as 'module:name': a function, a writer, a class of the user's own.

Who calls it: whatever takes code of the user's (`declare.loading`, `operate.alerts`, `sinks.files.formats`, `sinks.outbox.target`, `sources.custom`).
Importing runs the user's module. Not promised: what kind of thing it is; the caller looks.
"""

from __future__ import annotations

import difflib
import pkgutil
import sys
from typing import Any

from onlyonce.model import origin
from onlyonce.model.errors import OnlyonceError, Refused


def named(text: str, subject: str, **words: str) -> Any:
    """What 'module:name' stands for. Raises Refused, "`subject` is not there: …", with the caller's `data` and `hint`."""
    try:
        return pkgutil.resolve_name(text)
    except OnlyonceError:
        raise
    except (ImportError, AttributeError, ValueError) as error:
        place = origin.in_python(error)
        if place is None:
            words["hint"] = _guess(text) + words.get("hint", "")
        what = f"{subject} is not there: {error}" if place is None else f"{place}: {subject} is not there: {error}"
        raise Refused(what, **words) from error
    except Exception as error:  # the module is the user's: whatever it raises as it is imported
        words["hint"] = "correct that line; the module must be importable"
        raise Refused(
            f"{origin.in_python(error) or subject}: {subject} can't be imported: {type(error).__name__}: {error}",
            **words,
        ) from error


def _guess(text: str) -> str:
    """The nearest name that the module has, where the module is there."""
    module, _, name = text.partition(":")
    close = difflib.get_close_matches(name, vars(sys.modules[module]) if module in sys.modules else (), n=1)
    return f"did you mean '{module}:{close[0]}'? " if close else ""
