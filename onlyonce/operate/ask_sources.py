"""Ask each declared source for its unread input and store the answers, for alerts, metrics and the page.

The DAG `onlyonce_ask_sources` runs it, without Spark. A source that does not answer gets an answer that says so. Its
earlier numbers are replaced: they are not known to be right any more.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from onlyonce import job_main, settings
from onlyonce.api import load as declarations
from onlyonce.asked import parse
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.sources import SourceAnswers
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.operate import unread
from onlyonce.operate.unread import Answer, Row


def main(argv: list[str]) -> Report:
    """Ask all sources at once and report their answers. Raise Retryable if the log can't be reached."""
    pipelines = declarations.load(parse("ask_sources", argv).pipelines)
    database = Database(settings.database_url(), "onlyonce-ask-sources")
    migrate(database.url)
    answers = unread.ask(pipelines.values(), Views(database).rows("taken_in"))
    every = timedelta(minutes=settings.ask_sources_minutes())
    SourceAnswers(database).store([_stored(one) for one in answers], every)
    rows = [{"pipeline": one.pipeline, "stage": one.stage, **one.row()} for one in answers]
    failed = sum(one.backlog.failed for one in answers)
    return Report(
        f"asked {len(rows)} source(s)",
        f"ask_sources__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}",
        {"asked": len(rows), "without an answer": failed},
        {"answers": rows},
        [f"{one.pipeline}/{one.stage} did not answer: {one.backlog.why}" for one in answers if one.backlog.failed],
    )


def _stored(one: Answer) -> Row:
    found = one.backlog
    return {
        "pipeline": one.pipeline,
        "source": one.source or "",
        "asked_at": one.asked_at,
        "answered": not found.failed,
        "records": found.records,
        "bytes": found.bytes,
        "oldest_unread_at": found.oldest,
        "detail": dict(found.detail),
        "why_unknown": found.why,
    }


def cli() -> None:
    """Run as a program."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
