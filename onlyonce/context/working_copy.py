"""The checkpoint of a query without state whose data is in a store: Spark works on a copy of it, on the driver's disk.

Spark asks a store four times for each file of a checkpoint whether it is there, each time in two requests, before it
puts it. Without state a checkpoint is two files for each batch, `offsets/<n>` and `commits/<n>`. So Spark gets a folder
of this machine that has the last of them, and each file is put into the store from here, in one request and as Spark
has written it. What is in the store is the checkpoint; the copy is made anew for each start, and nobody else reads it.

- `offsets/<n>` is put on condition that there is none, before the batch begins in the log: a replay by any driver finds
  the plan that the batch row rests on.
- `commits/<n>` is put after the batch has ended, and before the offsets of the next one. A driver that is killed before
  has left the log one batch ahead, as it may be (docs/specification/object-store.md).

Who calls it: `receive`, `outputs`, and `query`. Errors: Retryable where another driver has planned the batch otherwise;
those of the store. Not promised: more than the last KEPT batches, of which up to AT_ONCE more stay for a while.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from onlyonce.model.errors import Retryable
from onlyonce.model.storage.location import Location
from onlyonce.session.failures import PLANNED
from onlyonce.spark import temporary
from onlyonce.storage import checkpoint, stores
from onlyonce.storage.stores import options

KEPT = 100
"""Batches whose files stay, as Spark keeps them."""
AT_ONCE = 10
"""So many batches' files leave the store in one request, at each so many-th batch. What a kill has left goes at a
start."""
KINDS = ("offsets", "commits")


def session(spark: SparkSession) -> SparkSession:
    """A session like the run's for a stream that works on a copy: the run's own writes checkpoints as only stores
    can."""
    found = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    found.conf.set(options.CHECKPOINTS, options.ON_DISK)
    return found


@contextmanager
def of(folder: Location) -> Iterator[WorkingCopy | None]:
    """A copy of the checkpoint at a folder, for as long as the context; None for one on a disk, which Spark works on
    itself."""
    if isinstance(folder, Path):
        yield None
        return
    with tempfile.TemporaryDirectory(dir=temporary.of_driver(), prefix="checkpoint-") as path:
        yield WorkingCopy(folder, Path(path))


@dataclass
class WorkingCopy:
    """The copy at `path` of the checkpoint at `folder`."""

    folder: Location
    path: Path
    _put: int = -1

    @property
    def url(self) -> str:
        """As Spark is to be told, whose own file system may be another."""
        return f"file://{self.path}"

    def fill(self) -> None:
        """Make it what Spark reads at a start: the last two offsets, and the last commit.

        What is older than a checkpoint keeps leaves the store.
        """
        stores.of(self.path).clear(self.path)
        store = stores.of(self.folder)
        there = {
            kind: sorted(int(name) for name in store.names(self.folder / kind) if name.isdigit()) for kind in KINDS
        }
        self._put = max(there["commits"], default=-1)
        self._take("metadata")
        for number in there["offsets"]:
            if number >= self._put - 1:
                self._take(f"offsets/{number}")
        if self._put >= 0:
            self._take(f"commits/{self._put}")
        for kind, numbers in there.items():
            for number in numbers:
                if number <= self._put - KEPT:
                    store.delete(self.folder / kind / str(number))

    def planned(self, batch_id: int) -> None:
        """Before a batch begins in the log. Raises Retryable where another driver has put another plan."""
        self.ended()
        name = f"offsets/{batch_id}"
        if not stores.of(self.folder).put_new(self.folder / name, self._written(name)):
            raise Retryable(
                f"{PLANNED} {batch_id} of {self.folder}",
                data="nothing of the batch has begun here",
                hint="run the same command again; the epoch decides which driver goes on",
            )
        if batch_id % AT_ONCE == 0 and batch_id >= KEPT:
            old = range(max(batch_id - KEPT - AT_ONCE + 1, 0), batch_id - KEPT + 1)
            stores.of(self.folder).delete_all(self.folder, [f"{kind}/{number}" for kind in KINDS for number in old])

    def ended(self) -> None:
        """Put the word that Spark has written of a batch that has ended, if it is not there yet."""
        last = checkpoint.last(self.path, "commits")
        if last > self._put:
            stores.of(self.folder).put(self.folder / f"commits/{last}", self._written(f"commits/{last}"))
            self._put = last

    def _take(self, name: str) -> None:
        stores.of(self.path).put(self.path / name, stores.of(self.folder).read(self.folder / name))

    def _written(self, name: str) -> bytes:
        return stores.of(self.path).read(self.path / name)
