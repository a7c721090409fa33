"""Entry point: drain a pipeline, run it bounded, or run it without end.

The DAG `<pipeline>_stream` and `onlyonce run` run it.

The report is read from the log afterwards.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from onlyonce import logs, settings
from onlyonce.asked import parse
from onlyonce.commitlog import authorities, driver_runs
from onlyonce.commitlog.authorities import Authorities
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.long_runs import LongRuns
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Kafka, Pipeline
from onlyonce.failpoints import passing
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.report import Report
from onlyonce.model.run.isolation import for_good, refusal
from onlyonce.model.run.long_run import refuse_beside, refuse_with
from onlyonce.run import long_run, standby
from onlyonce.session import ending
from onlyonce.sources.files import folders
from onlyonce.storage.stores import claiming

if TYPE_CHECKING:
    from onlyonce.context.run_context import RunContext

log = structlog.get_logger()


def main(argv: list[str]) -> Report:
    """Run one pipeline once; gives the report of what is committed. Raises the platform's errors."""
    asked = arguments(argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    database = authorities.database_of(None)
    migrate(database.url)
    if (asked.start or asked.end) and not (asked.bounded and isinstance(pipeline.source, Kafka)):
        raise Refused(
            "--from and --to are for a bounded run over a topic",
            hint="add --bounded; files have no times: put the ones that you mean into an inbox of their own",
        )
    if asked.dry_run:
        return _dry_run(pipeline, asked)
    claiming.claim(settings.data_root(), str(Authorities(database).identity()))
    instance = _instance(database, pipeline, asked.bounded)
    Lineages(database).add_instance(instance, pipeline.name)
    passing("start-instance")
    with driver_runs.noted(database, asked.dag_id, asked.run_id, pipeline.name):
        skipped = (_run_long if asked.forever else _drain)(pipeline, instance, database, asked)
    return report(database, pipeline, instance, asked.run_id, skipped)


def arguments(argv: list[str]) -> Namespace:
    """What a run is asked for; the same words as `onlyonce run` and the DAG's Params."""
    asked = parse("run", argv)
    if asked.forever:
        refuse_with(close=asked.close, bounded=asked.bounded, dry_run=asked.dry_run)
    elif asked.standby:
        raise Refused("--standby is for a long run", data="nothing was read or written", hint="add --forever")
    return asked


def report(database: Database, pipeline: Pipeline, instance: str, run_id: str, skipped: Collection[str] = ()) -> Report:
    """What a run has committed, from the log; and the folders below an inbox that it has skipped."""
    warnings = [folders.told(skipped)] if skipped else []
    fates = Views(database).rows("run_fates", run_id=run_id)
    commits = Views(database).rows("run_commits", run_id=run_id)
    facts = {"pipeline": pipeline.name, "instance": instance, "batches": sum(f["batches"] for f in fates)}
    return Report(
        f"{pipeline.name}: committed by {run_id}", run_id, facts, {"fates": fates, "commits": commits}, warnings
    )


def _drain(pipeline: Pipeline, instance: str, database: Database, asked: Namespace) -> set[str]:
    from onlyonce.run import drain

    refuse_beside(LongRuns(database).look(instance))  # before Spark starts
    context = _context(pipeline, instance, database, asked)
    if context.bounded:
        drain.bounded(context)
        Lineages(database).close_instance(instance)
    else:
        drain.once(context, ended=asked.close)
    return context.skipped


def _run_long(pipeline: Pipeline, instance: str, database: Database, asked: Namespace) -> set[str]:
    every, place = timedelta(seconds=asked.every), standby.Place(database, instance)
    warm = _stand_by(pipeline, instance, database, asked, place) if asked.standby else None
    if asked.standby and warm is None:
        return set()
    # The place is taken before Spark starts: of two that were started by accident one costs nothing.
    with long_run.held(database, instance, asked.run_id, every, place) as mine:
        from onlyonce.run import continuous

        context = warm or _context(pipeline, instance, database, asked)
        context.between_batches, context.trigger = mine.between_batches, continuous.trigger(every)
        with continuous.up(context, mine.stop, mine.tell_down) as look:
            mine.turns(look, every)
    return context.skipped


def _stand_by(
    pipeline: Pipeline, instance: str, database: Database, asked: Namespace, place: standby.Place
) -> RunContext | None:
    """What a driver that takes another's place has ready; None where it is not to take it."""
    context = _context(pipeline, instance, database, asked)
    context.spark.range(1).count()  # with the first job Spark starts much that the next one has
    return context if standby.wait(database, instance, place) else None


def _context(pipeline: Pipeline, instance: str, database: Database, asked: Namespace) -> RunContext:
    from onlyonce.check import look
    from onlyonce.context.run_context import RunContext
    from onlyonce.session import garbage, session
    from onlyonce.sources.kafka.source_kafka import Bounds

    spark = session.start(f"onlyonce {instance}", asked.master)
    bounds = Bounds(asked.start, asked.end)
    context = RunContext(spark, pipeline, instance, asked.run_id, database, asked.max_files, bounds=bounds)
    context.check_declarations()
    context.refused = _refused(pipeline, look.check(pipeline, lambda: spark).wrong)
    garbage.leave_out_what_is_here()
    return context


def _refused(pipeline: Pipeline, wrong: Mapping[str, BaseException]) -> dict[str, OnlyonceError]:
    """Return the outputs that can't run. Raise the first one's refusal if no output can.

    A database that is away now may be back at its output's turn. So may be what raised an unknown error.
    """
    refused = {name: error for name, error in wrong.items() if isinstance(error, OnlyonceError) and for_good(error)}
    if refused and len(refused) == len(pipeline.roots()):
        raise refusal(refused)
    data = "this output wrote nothing; receive and the other outputs went on"
    return {name: type(error)(error.what, data=data, hint=error.hint) for name, error in refused.items()}


def _instance(database: Database, pipeline: Pipeline, bounded: bool) -> str:
    """The pipeline itself, or its bounded run: the last one if it did not finish, else the next."""
    if not bounded:
        return pipeline.name
    last = Lineages(database).last_bounded(pipeline.name)
    if last is None:
        return f"{pipeline.name}@1"
    name, done = last
    return f"{pipeline.name}@{int(name.rsplit('@', 1)[1]) + 1}" if done else name


def _dry_run(pipeline: Pipeline, asked: Namespace) -> Report:
    from onlyonce.session import session
    from onlyonce.sources.files import source_files
    from onlyonce.sources.kafka import source_kafka

    if pipeline.sources:
        raise Refused(
            f"{pipeline.name} has several sources, and a dry run looks at one",
            data="nothing was read or written",
            hint="onlyonce lag shows how far each source has come",
        )
    if isinstance(pipeline.source, Kafka):
        topic = source_kafka.topic_of(pipeline, pipeline.source, pipeline.name)
        found = topic.waiting(session.start(f"onlyonce {pipeline.name}", asked.master))
        offsets = sum(one.offsets for one in found)
        told = {
            "new offsets": offsets, "batches": -(-offsets // pipeline.source.max_offsets_a_batch),
            "topic": pipeline.source.topic, "lost ranges": sum(one.refusal is not None for one in found),
        }  # fmt: skip
        return Report(f"{pipeline.name}: a run would read", asked.run_id, told)
    inbox = source_files.placed(
        source_files.inbox_of(pipeline, pipeline.name, asked.max_files),
        lambda: session.start(f"onlyonce {pipeline.name}", asked.master),
    )
    batches = source_files.waiting(inbox)
    files = [file for batch in batches for file in batch]
    facts = {
        "new files": len({f.path for f in files}), "lines": sum(f.lines for f in files), "batches": len(batches),
        "inbox": str(inbox.folder),
    }  # fmt: skip
    skipped = inbox.folders.skipped
    return Report(
        f"{pipeline.name}: a run would read", asked.run_id, facts, warnings=[folders.told(skipped)] if skipped else []
    )


def cli() -> None:
    """The application that spark-submit runs: prints the report, ends with the error's exit code."""
    ending.run(main)


if __name__ == "__main__":
    cli()
