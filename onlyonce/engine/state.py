"""Where Spark keeps the open windows of the outputs, and in how many partitions.

RocksDB keeps state on the disk of the executor, and writes the changes of a batch to the checkpoint (a changelog). So
state may be larger than memory, and the JVM's garbage collector does not scan it. All RocksDB stores of a process share
one bounded memory, in addition to the JVM's. An output keeps its first settings for its incarnation: Spark reads both
the store and the number of partitions from the checkpoint (`tests/spark/outputs/test_state.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from onlyonce import settings
from onlyonce.core.errors import Refused

_STORE = "spark.sql.streaming.stateStore"
PROVIDER = f"{_STORE}.providerClass"
CHANGELOG = f"{_STORE}.rocksdb.changelogCheckpointing.enabled"
UNLOAD = f"{_STORE}.unloadOnCommit"
"""Whether a task unloads its store when its batch ends.

Only then does a driver that lives for less than a minute upload snapshots and remove old files. Otherwise a thread does
it once a minute, and a store is loaded from the changes of all batches since the beginning.
"""
PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDERS = {
    kind: f"org.apache.spark.sql.execution.streaming.state.{name}StateStoreProvider"
    for kind, name in (("rocksdb", "RocksDB"), ("memory", "HDFSBacked"))
}


def options(master: str, theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the state of all outputs. Raise Refused if a setting is wrong."""
    asked = settings.spark()
    found = {PROVIDER: PROVIDERS[asked.state]}
    if not master.startswith("local") and (cores := cluster_cores(theirs)):
        found[PARTITIONS] = str(cores)
    if asked.state == "rocksdb":
        found |= {
            CHANGELOG: "true",
            f"{_STORE}.rocksdb.boundedMemoryUsage": "true",
            f"{_STORE}.rocksdb.maxMemoryUsageMB": str(asked.state_memory),
            # A count of all rows, which is not used, would read each key before it is written.
            f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
        }
    return found


def is_unsaid(master: str, partitions: str | None) -> bool:
    """Return whether no setting fixes the number of state partitions.

    On a cluster Spark would make 200, for the incarnation of the output. Pure.
    """
    return not master.startswith("local") and partitions is None


def unsaid(output: str) -> Refused:
    """Return the error raised before the first batch of such an output. Pure."""
    return Refused(
        f"nothing says in how many partitions the state of {output} is kept, and its first batch would keep Spark's "
        "200 for its incarnation",
        data="the output has not begun; what was received stays",
        hint="say how many cores it may have: spark.cores.max on spark://, else spark.executor.instances and "
        "spark.executor.cores; or the number itself: ONLYONCE_SHUFFLE_PARTITIONS. Then run the same command again",
    )


def cluster_cores(theirs: Mapping[str, str]) -> int | None:
    """Return how many cores a cluster is asked for: all its executors together, or their maximum.

    None if no setting says so. Pure.
    """
    if most := theirs.get("spark.cores.max"):
        return int(most)
    dynamic = theirs.get("spark.dynamicAllocation.enabled") == "true"
    executors = theirs.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances")
    return int(executors) * int(theirs.get("spark.executor.cores", "1")) if executors else None
