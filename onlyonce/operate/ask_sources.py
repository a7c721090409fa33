"""Ask each declared source for its unread input and store the answers, for alerts, metrics and the page.

The DAG `onlyonce_ask_sources` runs it, without Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime

from onlyonce import job_main, settings
from onlyonce.api import load as declarations
from onlyonce.asked import parse
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.sources import backlog


def main(argv: list[str]) -> Report:
    """Ask all sources at once and report their answers. Raise Retryable if the log can't be reached."""
    pipelines = declarations.load(parse("ask_sources", argv).pipelines)
    database = Database(settings.database_url(), "onlyonce-ask-sources")
    migrate(database.url)
    found = backlog.ask_and_store(database, pipelines.values())
    rows = [{"pipeline": one.pipeline, "stage": one.stage, **one.row()} for one in found]
    failed = sum(one.backlog.failed for one in found)
    return Report(
        f"asked {len(rows)} source(s)",
        f"ask_sources__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}",
        {"asked": len(rows), "without an answer": failed},
        {"answers": rows},
        [f"{one.pipeline}/{one.stage} did not answer: {one.backlog.why}" for one in found if one.backlog.failed],
    )


def cli() -> None:
    """Run as a program."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
