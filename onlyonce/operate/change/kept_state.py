"""Outputs that keep their open windows otherwise than the settings say, for `onlyonce plan`: only a new life changes
it.

Spark reads from the checkpoint where a query keeps its state and in how many partitions. Who calls it:
`onlyonce.operate.change.plan`. Errors: OSError for a checkpoint that can't be read. Not promised: what a cluster's own
settings say of the partitions; where ours say nothing, nothing is told of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from onlyonce import settings
from onlyonce.commitlog.declared import Ran
from onlyonce.model import stored_names
from onlyonce.spark.state import PROVIDERS
from onlyonce.storage import checkpoint, stores


def told(instance: str, staying: Iterable[Ran]) -> list[str]:
    """A sentence for each query whose life goes on with another state than the settings say."""
    return [text for one in staying if one.query != "receive" and (text := _told(instance, one))]


def _told(instance: str, ran: Ran) -> str | None:
    folder = (
        settings.data_location(instance) / stored_names.CHECKPOINTS_FOLDER / ran.query / ran.lineage.rsplit("/", 1)[1]
    )
    there = checkpoint.state_of(folder) if any(stores.of(folder).names(folder / "state")) else None
    if there is None:
        return None
    asked = settings.spark()
    kept = next((kind for kind, provider in PROVIDERS.items() if provider == there.provider), there.provider)
    differs = [f"state is {kept}, and the settings say {asked.state}"] if kept != asked.state else []
    if asked.shuffle_partitions not in (None, there.partitions):
        differs.append(f"it is in {there.partitions} partitions, and the settings say {asked.shuffle_partitions}")
    return (
        f"{ran.lineage}: {', '.join(differs)}; onlyonce lineage new {instance}/{ran.query} changes it"
        if differs
        else None
    )
