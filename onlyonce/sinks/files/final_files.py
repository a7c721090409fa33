"""Compares the files of a sharded output with what their units have recorded: the size of each, and the content of the
last ones.

Who calls it: `onlyonce.operate.audit_data`. Errors: Retryable while their folder or store is away. Not promised: a
check of the content of older files. `onlyonce finalize` has read each file once, when it gave it its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onlyonce.model.errors import Retryable
from onlyonce.model.sinks.shards import Winner
from onlyonce.sinks.files.stores import Store, store_of

SAMPLE = 30
"""Files, the last ones that got their final names, whose content is read."""


def disagreements(winners: list[Winner]) -> Iterator[str]:
    """What is not as the log says, of files that have their final names."""
    final = sorted((w for w in winners if w.finalized_at), key=lambda w: (w.finalized_at, w.file_no))
    read = {winner.file_no for winner in final[-SAMPLE:]}
    for winner in final:
        try:
            found = _found(store_of(winner.place), winner, winner.file_no in read)
        except OSError as error:
            raise Retryable(
                f"{winner.place}: {error}",
                data="nothing was changed; the audit only reads",
                hint="see that the folder or store can be reached, then run the same command again",
            ) from error
        if found:
            yield (
                f"{winner.name}: the log says {winner.bytes} bytes, sha256 {winner.checksum[:16]}…; {found} "
                f"({winner.place})"
            )


def _found(store: Store, winner: Winner, read: bool) -> str | None:
    """What is there instead; None where it is as recorded."""
    size = store.size(winner)
    if size is None:
        return "it is not there"
    if size != winner.bytes:
        return f"it has {size} bytes"
    checksum = hashlib.sha256(store.read(winner)).hexdigest() if read else winner.checksum
    return None if checksum == winner.checksum else f"its sha256 is {checksum[:16]}…"
