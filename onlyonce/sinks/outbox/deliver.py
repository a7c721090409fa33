"""Entry point: send the rows that wait in the outbox. No Spark. The task `deliver` and `onlyonce deliver` run it.

Each row of a Webhook or BigQuery output was committed with its unit. It is sent under an idempotency key that never
changes, in the order of its key's rows, and again after a pause if that may help. After `attempts` it is a dead letter
(docs/specification/outbox-row.md). Kafka, BigQuery's streams and the user's own sinks take whole units, in order. A
unit that they can't take holds all that come after it. It is safe beside a running stream and beside itself, and may be
killed at any point and run again.

Errors: Refused for an output that is not declared and for an endpoint that refuses everybody, Retryable for an endpoint
that is away, Superseded if another deliverer has taken over. Not promised: that a target which ignores the key gets a
row only once, if an answer was lost.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import structlog

from onlyonce import job_main, logs, settings
from onlyonce.asked import parse
from onlyonce.commitlog.sinks import outbox
from onlyonce.commitlog.sinks.outbox import Deliverer, OutboxRows, Policy
from onlyonce.commitlog.sinks.outbox_units import OutboxUnits, Streams
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Output, Pipeline, Sent, UnitSink, unknown
from onlyonce.model.errors import OnlyonceError, Refused, Retryable
from onlyonce.model.report import Report
from onlyonce.sinks.outbox.courier import Courier
from onlyonce.sinks.outbox.sender import sender_of
from onlyonce.sinks.outbox.target import target_of
from onlyonce.sinks.outbox.units import UnitCourier

log = structlog.get_logger()

GIVEN_UP_SHOWN = 20


def main(argv: list[str]) -> Report:
    """Deliver once, everything or one pipeline; the report says what is left."""
    asked = parse("deliver", argv)
    logs.configure(job="deliver")
    database = Database(settings.database_url(), "onlyonce/deliver")
    migrate(database.url)
    started = datetime.now(UTC)
    chosen = _chosen(asked)
    problems: list[OnlyonceError] = []
    busy: list[str] = []
    for instance, pipeline in chosen:
        sending = [o for o in pipeline.outputs if isinstance(o.sink, Sent) and asked.output in (None, o.name)]
        if asked.retry_dead:
            names = [output.name for output in sending]
            OutboxRows(database).retry_dead(instance, names)  # type: ignore[misc]
        for output in sending:
            try:
                busy += [] if deliver(database, instance, output) else [f"{instance}/{output.name}"]
            except (Refused, Retryable) as error:
                # One endpoint that is away keeps no other waiting.
                problems.append(error)
    told = _report(database, chosen, started, busy)
    if problems:
        log.warning("not all was delivered", **told.facts)
        raise problems[0]
    return told


def _chosen(asked: Namespace) -> list[tuple[str, Pipeline]]:
    """(instance, its pipeline). Rows of a bounded run are sent only when it is named: the stream has sent the same."""
    declared = declarations.load(asked.pipelines)
    if asked.pipeline is None:
        return sorted(declared.items())
    name = asked.pipeline.partition("@")[0]
    if name not in declared:
        raise unknown("pipeline", name, sorted(declared))
    if asked.output is not None and not isinstance(declared[name].output(asked.output).sink, Sent):
        raise Refused(
            f"output {asked.output} sends nothing",
            hint="only these sinks send rows: Webhook, BigQuery, BigQueryStream, KafkaSink, CustomSink",
        )
    return [(asked.pipeline, declared[name])]


def deliver(database: Database, instance: str, output: Output) -> bool:
    """Send what waits of one output; gives False when another deliverer is at it. Raises as `main`."""
    assert isinstance(output.sink, Sent)
    if not OutboxRows(database).waits(instance, output.name):
        return True  # no target is asked, and no secret needed, for nothing
    if isinstance(output.sink, UnitSink):
        return _deliver_units(database, Deliverer(instance, output.name), output.sink)
    policy = Policy(output.sink.attempts, output.sink.remembers)
    with outbox.alone(database, Deliverer(instance, output.name)) as ours:
        if not ours:
            return False
        deliverer, lost = OutboxRows(database).take_over(instance, output.name, policy)
        if lost:
            log.warning("attempts of an ended deliverer are unanswered", output=deliverer.name, rows=lost)
        with (
            sender_of(output.sink, f"{instance}/{output.name}") as sender,
            ThreadPoolExecutor(output.sink.at_once) as threads,
        ):
            Courier(database, deliverer, policy, output.sink, sender, threads).drain()
    return True


def _deliver_units(database: Database, unnumbered: Deliverer, sink: UnitSink) -> bool:
    """The same for a target of whole units: the epoch first, then the target, which fences the one before in its own
    way."""
    with outbox.alone(database, unnumbered) as ours:
        if not ours:
            return False
        deliverer = OutboxUnits(database).take_over(unnumbered)
        streams = Streams(database, deliverer)
        with target_of(sink, f"{deliverer.instance}/{deliverer.output}", streams) as target:
            lost = OutboxUnits(database).recover(deliverer, uncertain=target.guarantee == "at_least_once")
            if lost:
                log.warning("attempts of an ended deliverer are unanswered", output=deliverer.name, rows=lost)
            UnitCourier(database, deliverer, target).drain()
    return True


def _report(
    database: Database, chosen: Sequence[tuple[str, Pipeline]], started: datetime, busy: Sequence[str]
) -> Report:
    def about(query: str, **parameters: Any) -> list[dict[str, Any]]:
        return [
            {"pipeline": instance} | row
            for instance, _ in chosen
            for row in OutboxRows(database).rows_about(query, instance, **parameters)
        ]

    left = about("left_over")
    given_up, uncertain = about("given_up", n=GIVEN_UP_SHOWN), about("uncertain")
    count = {
        state: sum(row["rows"] for row in left if row["state"] == state) for state in ("waiting", "dead", "invalid")
    }
    warnings = [f"{name}: another deliverer is at work; it was left to it" for name in busy]
    warnings += _undeclared(chosen, left)
    warnings += [
        f"{row['pipeline']}/{row['output']}: {row['rows']} row(s) are held until the backfill that made them has "
        "ended: "
        "see onlyonce.backfills. If it was killed, the same backfill run again throws them away and sends its own"
        for row in left
        if row["state"] == "held"
    ]
    if given_up:
        warnings.append(
            f"{count['dead']} dead letter(s), {count['invalid']} rejected row(s). When the cause is gone: "
            "onlyonce deliver --retry-dead sends them again"
        )
    if uncertain:
        warnings.append(
            f"{sum(row['rows'] for row in uncertain)} row(s) may be at their target twice: see the table uncertain"
        )
    shown = {"not delivered": left, "given up": given_up, "uncertain": uncertain}
    title = "deliver: all is delivered" if not left else "deliver: some rows are not delivered"
    return Report(title, f"deliver__{started:%Y-%m-%dT%H:%M:%S}", dict(count), shown, warnings)


def _undeclared(chosen: Sequence[tuple[str, Pipeline]], left: Sequence[dict[str, Any]]) -> list[str]:
    sent = {(instance, o.name) for instance, pipeline in chosen for o in pipeline.outputs if isinstance(o.sink, Sent)}
    return [
        f"{row['pipeline']}/{row['output']}: {row['rows']} row(s) wait for an output that is not declared any more"
        for row in left
        if (row["pipeline"], row["output"]) not in sent
    ]


def cli() -> None:
    """`python -m onlyonce.sinks.outbox.deliver`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
