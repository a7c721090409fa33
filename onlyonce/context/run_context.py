"""What one run works with: the session, the pipeline, where its data is, and its queries under their epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Condition
from typing import Any
from uuid import UUID

from pyspark.sql import SparkSession

from onlyonce import settings
from onlyonce.commitlog import declared, lineages
from onlyonce.commitlog.arrivals import Arrivals
from onlyonce.commitlog.authorities import Authorities
from onlyonce.commitlog.declared import Declarations
from onlyonce.commitlog.driver_clock import DriverClock
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.operate.dropping import Drops
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.context.query import WHAT_IS_THERE, Query
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.target_identity import targets
from onlyonce.failpoints import passing
from onlyonce.lookups.seen import NOTHING, Seen
from onlyonce.model import partitions, stored_names
from onlyonce.model.batch import EXACTLY_ONCE
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.sources.arrivals import Corrections
from onlyonce.model.storage.location import Location
from onlyonce.sources import sources
from onlyonce.sources.kafka.source_kafka import Bounds
from onlyonce.sources.reading import Readings
from onlyonce.spark.state import cluster_cores
from onlyonce.storage import checkpoint
from onlyonce.storage.appended import Own

CUTTING = (
    "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.sql.files.maxPartitionBytes",
    "spark.default.parallelism", "spark.master",
)  # fmt: skip
"""The Spark settings that move rows between partitions; each batch row keeps them."""


@dataclass
class RunContext:
    """One run of one pipeline, on its stream or bounded. `instance` names its lineages, data and targets.

    between_batches   called where a batch would begin; what it raises ends the run there, with nothing of it written
    trigger           of its queries, as Spark is told
    receiving         held by a batch of receive and by a close, so that neither falls into the other; notified at their
                      end
    seen              the lookups that functions get, at the versions of the batch at work
    looked_at         when the driver last began to look for new input
    refused           output with a query of its own -> why its table can't take its rows
    skipped           the folders below an inbox that its listings have skipped
    """

    spark: SparkSession
    pipeline: Pipeline
    instance: str
    run_id: str
    database: Database
    max_files: int | None = None
    between_batches: Callable[[], None] = lambda: None
    bounds: Bounds = field(default_factory=Bounds)
    trigger: Mapping[str, Any] = field(default_factory=lambda: WHAT_IS_THERE)
    receiving: Condition = field(default_factory=Condition)
    seen: Seen = NOTHING
    looked_at: datetime | None = None
    refused: Mapping[str, OnlyonceError] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    _open: dict[str, Query] = field(default_factory=dict)
    _clock: DriverClock | None = None
    _appended: Own | None = None
    _readings: Readings = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        """Whether this is a bounded run, where nothing is late and the targets are its own."""
        return self.instance != self.pipeline.name

    @property
    def mode(self) -> str:
        """In which mode a batch begins. A bounded run is always exactly once."""
        return EXACTLY_ONCE if self.bounded else self.pipeline.mode

    @cached_property
    def platform(self) -> UUID | None:
        """The id of the platform's database."""
        return Authorities(self.database).identity()

    @property
    def folder(self) -> Location:
        """The place of the instance's own data."""
        return settings.data_location(self.instance)

    @property
    def events(self) -> Location:
        """The table `events`."""
        return self.folder / stored_names.EVENTS_FOLDER

    def appended(self) -> Own:
        """`events` as it is now, for this run to append to it.

        Reads what has come to the table's log since the last call.
        """
        self._appended = self._appended.look() if self._appended else Own(self.events)
        return self._appended

    @property
    def blocks(self) -> Path | None:
        """The folder of what is on its way to its task; None where no disk is shared, and it goes by Spark's exchange:
        on a cluster, with data in a store."""
        shared = isinstance(self.folder, Path) or self.spark.sparkContext.master.startswith("local")
        return settings.blocks_dir(self.instance) if shared else None

    @cached_property
    def corrected(self) -> Corrections:
        """The corrected arrivals of the input. No driver is at work while they change."""
        return Arrivals(self.database).corrected(self.instance)

    def check_clock(self) -> None:
        """Raise Refused if the driver's clock can't give an ingestion time: it is far from PostgreSQL's."""
        self._clock = self._clock or DriverClock(self.database)
        self._clock.check()

    def source(self) -> sources.Source:
        """The source of the pipeline, by the registry of this instance."""
        return sources.of(
            self.pipeline,
            self.instance,
            self.max_files,
            self.bounds if self.bounded else None,
            self._readings,
            self.skipped,
        )

    def open_query(self, name: str) -> Query:
        """Find or register the lineage, see that the checkpoint is its own, bump the epoch; once a run.

        docs/specification/incarnation.md.

        Raises the refusal of an output's table, before anything of it is begun. Raises Refused for a checkpoint that
        was lost, swapped or restored, for a declaration under which the lineage can't go on (`onlyonce plan`), and for
        a first life that would begin at records which are removed.
        """
        if name in self._open:
            return self._open[name]
        if name in self.refused:
            raise self.refused[name]
        lineage = Removals(self.database).register(self.instance, name)
        passing("start-registered")
        folder = self.folder / stored_names.CHECKPOINTS_FOLDER / name / str(lineage.life)
        begun = Lineages(self.database).last_batches(lineage.lineage)[0]
        checkpoint.prepare(folder, lineage.lineage, lineage.checkpoint_id, begun)
        lineages.refuse_damaged(lineage)
        Declarations(self.database).go_on(lineage, self.declared(name))
        passing("start-before-bump")
        driver = Lineages(self.database).bump(lineage, self.run_id)
        passing("start-after-bump")
        committed = Lineages(self.database).last_batches(lineage.lineage)[1]
        checkpoint.compare(folder, lineage.lineage, committed)
        checkpoint.sweep(folder)
        self._open[name] = Query(
            driver, folder, driver.session(self.database), lineage.start_from or {}, self.between_batches, self.trigger
        )
        return self._open[name]

    def lineages(self) -> dict[str, str]:
        """The lineage of each query that is open, by the query's name."""
        return {name: query.lineage for name, query in list(self._open.items())}

    def settings(self) -> dict[str, str]:
        """The Spark settings that cut data, as they are now."""
        conf = self.spark.conf
        return {name: str(conf.get(name, None)) for name in CUTTING}

    def partitions_of(self, size: int) -> int:
        """In how many partitions a batch of about so many bytes is cut that begins now.

        A replay takes the number of its row.
        """
        if self.pipeline.partitions:
            return self.pipeline.partitions
        return partitions.of_batch(
            size, self._asked_cores or self.spark.sparkContext.defaultParallelism, settings.spark().most_partitions
        )

    @cached_property
    def _asked_cores(self) -> int | None:
        """Of a cluster what it is asked for: executors come and go.

        Asked once: Python reads a setting of Spark's by a call for each.
        """
        return cluster_cores(dict(self.spark.sparkContext.getConf().getAll()))

    def declaration_hash(self, query: str) -> str:
        """The fingerprint of what decides a query's results."""
        return declarations.fingerprint(self.pipeline, query)

    def declared(self, query: str) -> declared.Declared:
        """What a query is declared as, to be kept in the log."""
        parts = declarations.parts(self.pipeline, query)
        return declared.Declared(self.instance, query, self.declaration_hash(query), parts)

    def check_declarations(self) -> None:
        """Before a run reads anything: raise Refused when one of its queries can't go on as it is declared now, or
        would write to what a drop has left."""
        places = targets(self.pipeline, self.instance)
        Drops(self.database).refuse_left(self.instance, places)
        for query in self.pipeline.queries():
            live = Lineages(self.database).live(self.instance, query)  # type: ignore[misc]
            if live:
                now = self.declared(query)
                Declarations(self.database).check(live, now)  # type: ignore[misc]

    def kept_declaration(self, query: str) -> str:
        """The fingerprint of a query's declaration, which is kept in the log. A backfill makes windows under it."""
        now = self.declared(query)
        Declarations(self.database).keep(now)
        return now.hash

    def target_suffix(self) -> str:
        """What a bounded run adds to the name of a target, so that it has targets of its own."""
        return self.instance.removeprefix(self.pipeline.name)
