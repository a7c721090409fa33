"""Ask, without Spark, whether a run would find anything to do. docs/specification/run.md.

Whether a source has new input is asked last, after the manifest, the log, the checkpoints and `events`, by the same
code that registers input. Input that comes after that is the next run's. What can't be asked counts as work: then the
run starts Spark and raises the error, if it is one.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from onlyonce import check, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog.batches import Batches, WatermarkMarkers
from onlyonce.commitlog.drivers import DriverClock
from onlyonce.commitlog.incarnations import Declarations, Incarnation, Incarnations
from onlyonce.core import idle, stored_names
from onlyonce.core.batch import read_upto
from onlyonce.core.errors import OnlyonceError
from onlyonce.core.idle import QueryFacts, Reason, RunFacts
from onlyonce.core.runs import first_line
from onlyonce.database.connect import Database
from onlyonce.outputs import events
from onlyonce.receive import loop
from onlyonce.sources.all_sources import Source
from onlyonce.tables import checkpoint, commit, opening

log = structlog.get_logger()


def why_spark(database: Database, pipeline: Pipeline, source: Source, *, ended: bool) -> Reason | None:
    """Return why a run of the stream has to start Spark; None if it has nothing to do.

    `ended`: whether the run declares the input ended.
    """
    try:
        DriverClock(database).check()  # a run without Spark refuses a wrong clock, too
        found = idle.of_run(_facts(database, pipeline, source, ended=ended))
        if found is None and source.waits():
            found = Reason.SOURCE
    except Exception as error:
        # The text of an error of the user's class may repeat values of a record.
        problem = first_line(error) if isinstance(error, OnlyonceError) else type(error).__name__
        log.info("Spark starts", why=Reason.UNKNOWN.value, problem=problem)
        return Reason.UNKNOWN
    log.info("Spark starts", why=found.value) if found else log.info("nothing to do: Spark does not start")
    return found


def note(database: Database, pipeline: Pipeline) -> None:
    """Note in the log that a driver has started, though none of its queries has.

    No fail-point: a kill in between is harmless. Some queries then keep the time of an earlier start; an alert takes
    the pipeline's newest time, and `doctor` reads the times of queries with a begun batch, which no query has here.
    """
    for query in pipeline.queries():
        if live := Incarnations(database).live(pipeline.name, query):
            Incarnations(database).note_started(live)


def note_declaration(database: Database, pipeline: Pipeline) -> None:
    """Store in a file of the home that a run has ended under the present declaration, if a query's last batch ran under
    another. `why_spark` compares with it.

    Otherwise each later run without input would start Spark for the change again. A run that fails notes nothing.
    """
    for query in pipeline.queries():
        live = Incarnations(database).live(pipeline.name, query)
        ran = Declarations(database).ran_under(query, live.incarnation) if live else None
        if ran and ran.hash != declarations.fingerprint(pipeline, query):
            check.keep_ran(pipeline)
            return


def _facts(database: Database, pipeline: Pipeline, source: Source, *, ended: bool) -> RunFacts:
    live = {query: Incarnations(database).live(pipeline.name, query) for query in pipeline.queries()}
    queries = {query: _of_query(database, pipeline, query, one) for query, one in live.items()}
    if any(idle.of_query(one) for one in queries.values()):
        return RunFacts(queries)  # the others need a committed batch of each query
    known = {query: one for query, one in live.items() if one}
    roots, now = pipeline.roots(), datetime.now(UTC)  # a run that starts searches for new input after this time
    return RunFacts(
        queries,
        WatermarkMarkers(database).is_open(known["receive"].incarnation),
        source.last_batch(),
        Batches(database).last_taken_in(pipeline.name),
        [root.name for root in roots if _has_unread(database, pipeline, known[root.name], queries[root.name])],
        sum(len(events.late_windows_of_stream(database, pipeline, pipeline.name, root)) for root in roots),
        loop.due_close(database, pipeline, now, ended=ended) is not None,
        loop.looked_idle(database, pipeline, source, now) is not None,
    )


def _of_query(database: Database, pipeline: Pipeline, query: str, live: Incarnation | None) -> QueryFacts:
    if live is None:
        return QueryFacts(None)
    begun, committed = Incarnations(database).last_batches(live.incarnation)
    ran = Declarations(database).ran_under(query, live.incarnation)
    declared = declarations.fingerprint(pipeline, query)
    folder = settings.data_location(pipeline.name) / stored_names.CHECKPOINTS_FOLDER / query / str(live.ordinal)
    if (
        committed is None
        or ran is None
        or not checkpoint.is_its_own(folder, live.incarnation, live.checkpoint_id, begun)
    ):
        return QueryFacts(live.state, begun, None)
    checkpoint.compare(folder, live.incarnation, committed)  # raises if it is not the log's: Spark starts and says so
    return QueryFacts(
        live.state,
        begun,
        committed,
        checkpoint.last(folder, "offsets"),
        checkpoint.last(folder, "commits"),
        ran.hash == declared or check.kept_ran(pipeline).get(query) == declared,
        query != "receive" and not ran.stateless and checkpoint.watermark_moved(folder),
    )


def _has_unread(database: Database, pipeline: Pipeline, live: Incarnation, query: QueryFacts) -> bool:
    """Return whether a later version of `events` than the output has read adds rows: a compaction adds none.

    Return True if the output has read further than the table reaches: Spark starts, and the run says so.
    """
    last = Batches(database).logged(live.incarnation, query.committed or 0)
    read = read_upto(last.plan.source_to) if last else -1
    table = settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER
    newest = commit.latest(table)
    return read > newest or any(opening.added(table, version) for version in range(read + 1, newest + 1))
