"""Merges the catalog as it grows. Receive's driver does it between two batches, for a bounded number of ids each time.

docs/specification/id-catalog.md. The chunks of a bucket are a log-structured merge tree
(`model/operate/collecting.to_merge`): the number of filters that a look-up asks grows with the logarithm of the ids,
and not with the batches. The bucket of the batch is merged by levels. With the first batch of a new bucket the one
before is closed, and its levels become one.

Who calls it: `receive`, when a batch is committed. If the database refuses or is too busy, the merge is left for the
next batch or the next collection; both go on from what they find. Raises Superseded, and InvariantBroken for chunks
that don't add up. Not promised: that everything is merged. While a collector works, this module does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog
from sqlalchemy import Connection

from onlyonce.catalog import merging
from onlyonce.catalog.collector import SHORT_WAIT
from onlyonce.catalog.merging import Merging
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database import locks
from onlyonce.database.connect import Database, ask, transaction
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.batch import Plan
from onlyonce.model.errors import CommitStateUnknown, Retryable
from onlyonce.model.operate import collecting

log = structlog.get_logger()


def merge(database: Database, driver: Driver, instance: str, plan: Plan) -> int:
    """Merge what the committed batch of this plan has made crowded; gives how many ids were written again."""
    merged = 0
    try:
        with transaction(database) as connection:
            crowds = list(_crowds(connection, plan))
        while crowds and merged < collecting.BETWEEN_BATCHES:
            with transaction(database) as connection:
                parts = _merge_one(connection, driver, instance, crowds[0])
            if parts:
                passing("merge-after-commit")
            else:
                del crowds[0]
            merged += sum(part.ids for part in parts)
    except (Retryable, CommitStateUnknown) as error:
        log.warning("the catalog is merged later", lineage=plan.lineage, batch=plan.batch_id, problem=error.what)
    return merged


def _crowds(connection: Connection, plan: Plan) -> Iterator[merging.Crowd]:
    """The bucket of the batch, and the one that closed with it."""
    yield merging.Crowd(plan.bucket, closed=False)
    for before in ask(connection, "collect", "bucket_before", lineage=plan.lineage, batch_id=plan.batch_id):
        if before.bucket < plan.bucket:
            yield merging.Crowd(before.bucket, closed=True)


def _merge_one(connection: Connection, driver: Driver, instance: str, crowd: merging.Crowd) -> list[collecting.Part]:
    Lineages(connection).check_epoch(driver.lineage, driver.epoch)
    ask(connection, "collect", "short_wait", wait=SHORT_WAIT)
    if not locks.if_free(connection, stored_names.catalog_lock(instance)):
        return []
    return Merging(connection).merge_locked(instance, crowd)
