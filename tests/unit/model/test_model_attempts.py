"""The folder of an attempt tells the transaction under which it commits."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onlyonce.core import locations, stored_names

INCARNATION = stored_names.incarnation("shop", "receive", 3)
TRANSACTIONS = [
    *(stored_names.transaction(INCARNATION, by) for by in (stored_names.EVENTS_BY, stored_names.MARKER_BY)),
    *(
        stored_names.transaction("shop", by)
        for by in (stored_names.FILES_BY, stored_names.RANGES_BY, stored_names.SOURCE_BATCHES_BY)
    ),
    *(stored_names.housekeeping("shop", by) for by in (stored_names.COMPACTION_BY, stored_names.RETENTION_BY)),
]


@pytest.mark.parametrize("app_id", TRANSACTIONS)
def test_an_attempt_is_known_by_its_folder(app_id: str) -> None:
    """Else what it has left is never swept: after an erasure values of records would stay on disk."""
    read = locations.read_attempt(locations.attempt_folder(app_id, 7, uuid4().hex))

    assert read is not None
    assert (read.app_id("shop"), read.version) == (app_id, 7)
