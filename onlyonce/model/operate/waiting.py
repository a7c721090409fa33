"""Finds work that waits for a command which has not run: a lost long run, an output that has stopped, files without
final names, rows of the outbox, messages of Pub/Sub.

Pure.

None of this work is half done. A finding names the command that should have run, and the doctor may run it. Work that
waits only for a short time is no finding, since its task or schedule may just be late.

Who calls it: `onlyonce.model.operate.diagnosis`. Errors: none. Not promised: that the command helps; a target may still
refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta

from onlyonce.model.operate.finding import FIX, Finding, Repair
from onlyonce.model.operate.stuck import (
    GivenUpRows,
    InputAhead,
    LostLongRun,
    OpenSubscription,
    OutputDown,
    SinkAway,
    UndeliveredRows,
    WaitingFiles,
    Waits,
)

HOUR = timedelta(hours=1).total_seconds()
DAY = timedelta(days=1).total_seconds()


def waiting(
    rows: Waits, declared: Collection[str], at_work: Collection[str], grace_seconds: float
) -> Iterator[Finding]:
    """What has waited for too long.

    `at_work`: instances with a driver.
    """
    for run in rows.long_runs:
        if run.instance not in at_work and run.quiet_seconds >= grace_seconds:
            yield _lost(run, declared)
    for output in rows.down:
        yield _down(output, declared)
    for files in rows.files:
        if files.waiting_seconds > HOUR:
            yield _files(files)
    for given_up in rows.given_up:
        yield _given_up(given_up, declared)
    for undelivered in rows.undelivered:
        if undelivered.quiet_seconds > HOUR and not undelivered.at_work:
            yield _undelivered(undelivered, declared)
    for subscription in rows.subscriptions:
        if subscription.held_seconds > DAY:
            yield _held(subscription, declared)
    for ahead in rows.ahead:
        yield _ahead(ahead)
    for away in rows.away:
        if away.batch.lineage.rsplit("/", 2)[0] not in at_work and away.batch.quiet_seconds >= grace_seconds:
            yield _not_asked(away)


def _ahead(row: InputAhead) -> Finding:
    name = row.instance
    what = (
        f"the ingestion time of {name} is {_long(row.ahead_seconds)} ahead of PostgreSQL's clock: a driver's "
        "clock was wrong"
    )
    data = (
        "nothing is lost or doubled; until then no id is removed, no idle source is passed over, and `max_ahead` "
        "accepts later event times. The repair lets "
        "what is registered count as arrived now: the ids of these batches stay in the catalog until then; ids "
        "that were removed stay removed, and a watermark "
        "that an accepted event time has moved does not move back"
    )
    return Finding("ingestion time ahead", name, what, data, Repair(f"{FIX} --yes", "arrivals", (name,), for_good=True))


def _lost(row: LostLongRun, declared: Collection[str]) -> Finding:
    name = row.instance
    what = (
        f"the long run of {name} is lost: the heartbeat of attempt {row.attempt} on {row.driver} ended "
        f"{_long(row.quiet_seconds)} ago, and nobody has started it again"
    )
    data = "nothing is lost or doubled; what comes waits until a long run or a drain takes it in"
    # A drain does not end a long run, so without the stop this would be found for ever.
    command = (
        f"onlyonce run {name} --forever, or its DAG in the mode forever. If it is not to go on: "
        f"onlyonce stop {name} --shell, then onlyonce run {name}"
    )
    return Finding("lost long run", name, what, data, _by_hand(row.pipeline, declared, command))


def _down(row: OutputDown, declared: Collection[str]) -> Finding:
    where = f"{row.instance}/{row.output}"
    what = f"output {where} of the long run stands still: {row.why}"
    data = "nothing is lost or doubled; the other outputs go on, and what this one owes stays in `events`"
    command = (
        f"mend that (the driver's log has all of the error); then onlyonce stop {row.instance}, and start it again, "
        "unless it is up again by itself"
    )
    return Finding("output stands still", where, what, data, _by_hand(row.pipeline, declared, command))


def _files(row: WaitingFiles) -> Finding:
    where = f"{row.instance}/{row.output}"
    what = (
        f"{row.files} file(s) of {where} in {row.place} wait for their final names, the first for "
        f"{_long(row.waiting_seconds)}"
    )
    data = "nothing is lost; their batches are committed, and whoever reads the files lacks these rows until then"
    name = row.pipeline
    return Finding(
        "files without final names", where, what, data, Repair(f"onlyonce finalize {name}", "finalize", (name,))
    )


def _given_up(row: GivenUpRows, declared: Collection[str]) -> Finding:
    where = f"{row.instance}/{row.output}"
    dead = row.state == "dead"
    words = "dead letter(s): they are not sent again" if dead else "row(s) that the server rejects"
    what = f"the outbox has {row.rows} {words} of {where}; the last answer: {row.answer}"
    data = "they are kept in the outbox and not known to be at their target; later rows of their keys may have gone on"
    if row.unanswered:
        data += f". {row.unanswered} of them had an attempt without an answer, and may be there"
    command = f"when the cause is gone: onlyonce deliver {row.instance} --output {row.output} --retry-dead"
    return Finding(
        "dead letters" if dead else "rejected rows", where, what, data, _by_hand(row.pipeline, declared, command)
    )


def _undelivered(row: UndeliveredRows, declared: Collection[str]) -> Finding:
    where, name = f"{row.instance}/{row.output}", row.instance
    what = (
        f"{row.rows} row(s) of {where} wait in the outbox, and nobody has tried to send one for "
        f"{_long(row.quiet_seconds)}"
    )
    data = "nothing is lost; they are not at their target yet, and are sent in order, each under its own key"
    command = f"onlyonce deliver {name}"
    repair = Repair(command, "deliver", (name,), for_good=True)
    if row.pipeline not in declared:
        repair = _by_hand(row.pipeline, declared, command)
    return Finding("undelivered rows", where, what, data, repair)


def _held(row: OpenSubscription, declared: Collection[str]) -> Finding:
    what = (
        f"{row.messages} landed message(s) of {row.subscription} are not known to be acknowledged, the first for "
        f"{_long(row.held_seconds)}"
    )
    data = (
        "nothing is lost or doubled: they may come again, so no record id seen since then is collected, and the "
        "catalog "
        f"of {row.pipeline} grows"
    )
    ends = f"{row.lapses_at:%Y-%m-%dT%H:%M:%SZ}"
    command = f"onlyonce land {row.pipeline} acknowledges what comes again; it ends by itself at {ends}"
    return Finding("held catalog", row.subscription, what, data, _by_hand(row.pipeline, declared, command))


def _not_asked(row: SinkAway) -> Finding:
    data = "whether that sink has rows of the begun batch is not known, so it begins not anew, and no new life is made"
    where, error = f"{row.batch.lineage}/{row.batch.batch_id}", row.error
    return Finding("sink away", where, error.what, data, Repair(error.hint))


def _by_hand(pipeline: str, declared: Collection[str], command: str) -> Repair:
    if pipeline in declared:
        return Repair(command)
    return Repair(f"declare {pipeline} again (ONLYONCE_PIPELINES), then: {command}")


def _long(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
