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

import structlog

from onlyonce.catalog.merging import Merging
from onlyonce.commitlog.lineages import Driver, Lineages
from onlyonce.database.connect import Database
from onlyonce.failpoints import passing
from onlyonce.model.batch import Plan
from onlyonce.model.errors import CommitStateUnknown, Retryable
from onlyonce.model.operate import collecting

log = structlog.get_logger()


def merge(database: Database, driver: Driver, instance: str, plan: Plan) -> int:
    """Merge what the committed batch of this plan has made crowded; gives how many ids were written again."""
    merged = 0
    try:
        with Merging.once(database) as merging:
            crowds = list(merging.grown(plan.lineage, plan.batch_id, plan.bucket))
        while crowds and merged < collecting.BETWEEN_BATCHES:
            with Lineages.once(database) as lineages:
                lineages.check_epoch(driver.lineage, driver.epoch)
                parts = Merging(lineages.scope).merge_if_free(instance, crowds[0])
            if parts:
                passing("merge-after-commit")
            else:
                del crowds[0]
            merged += sum(part.ids for part in parts)
    except (Retryable, CommitStateUnknown) as error:
        log.warning("the catalog is merged later", lineage=plan.lineage, batch=plan.batch_id, problem=error.what)
    return merged
