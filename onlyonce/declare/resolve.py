"""What a declaration or setting names as 'module:name': a function, a writer, a class of the user's own.

Who calls it: whatever takes code of the user's (`declare.loading`, `operate.alerts`, `sinks.files.formats`, `sinks.outbox.target`, `sources.custom`).
Importing runs the user's module. Not promised: what kind of thing it is; the caller looks.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from onlyonce.model.errors import Refused


def named(text: str, subject: str, **words: str) -> Any:
    """What 'module:name' stands for. Raises Refused, "`subject` is not there: …", with the caller's `data` and `hint`."""
    try:
        return pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(f"{subject} is not there: {error}", **words) from error
