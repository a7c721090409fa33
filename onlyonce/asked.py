"""Declare the options of every job once. Standard library only.

The command line makes its commands of these options (`onlyonce.cli.shell.asking`). A job parses its arguments by them
(`parse`), whether they come from the command line, from Airflow or from spark-submit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from onlyonce.core.errors import Refused


@dataclass(frozen=True)
class Option:
    """One option, or a positional argument if `flag` begins with no dash.

    kind       of the value: str, int, float, Path (which may be given several times) or bool (a switch)
    least the smallest number that is allowed
    needed     whether it must be given
    read       how the job reads the string; it may refuse it
    own        the option is the job's only: the command line has another way to set it
    """

    flag: str
    help: str
    kind: type = str
    name: str = ""
    default: Any = None
    metavar: str | None = None
    least: float | None = None
    needed: bool = False
    read: Callable[[str], Any] | None = None
    own: bool = False

    @property
    def dest(self) -> str:
        """Return its name in Python."""
        return self.name or self.flag.lstrip("-").replace("-", "_")

    @property
    def positional(self) -> bool:
        """Return whether it is given by its position."""
        return not self.flag.startswith("-")


def moment(text: str) -> datetime:
    """Return a time as people and Airflow write it; without a zone it is UTC. Raise Refused for anything else."""
    found = written(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def written(text: str) -> datetime:
    """Return a time as people and Airflow write it, without a zone if it has none. Raise Refused for anything else."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Refused(
            f"{text!r} is not a time",
            data="nothing was read or written",
            hint="write it as 2013-01-31 or 2013-01-31T05:00Z",
        ) from error
    return found


def _then_or_now(text: str) -> str:
    if text not in ("then", "now"):
        raise Refused(
            f"{text!r} is neither 'then' nor 'now'",
            data="nothing was read or written",
            hint="'then': the versions that each window saw when it was written; 'now': the newest",
        )
    return text


def comma_list(text: str) -> tuple[str, ...]:
    """Return the names of a list like 'a,b'."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pipeline(help: str = "A declared pipeline, like flights.") -> Option:
    return Option("pipeline", help, metavar="PIPELINE", needed=True)


def _any_pipeline(help: str) -> Option:
    return Option("pipeline", help, metavar="[PIPELINE]")


def _switch(flag: str, help: str) -> Option:
    return Option(flag, help, bool, default=False)


FILES = Option("--pipelines", "A file with declarations, instead of ONLYONCE_PIPELINES.", Path, metavar="FILE")
MASTER = Option("--master", "Spark's master; by default ONLYONCE_MASTER or local[*].")
RUN_ID = Option("--run-id", "The name of the run in the log; by default a new one.", own=True)
DAG_ID = Option("--dag-id", "The DAG that this run belongs to; by default none.", own=True)
YES = _switch("--yes", "Do it. Without this it only says what it would do.")
"""The flag of a command that deletes or rewrites data, or starts something again. Without the flag the command only
reports."""
DRY_RUN = _switch("--dry-run", "Say what would be done; change nothing.")
"""The flag of a command that only continues what is declared: it acts immediately."""
EVERY_SECONDS = 5.0
AUDIT_GRACE_MINUTES = 15
DRIVER_GRACE_MINUTES = 2.0

JOBS: Mapping[str, tuple[Option, ...]] = {
    "run": (
        _pipeline(),
        _switch("--close", "Declare the input ended: all windows with data close."),
        _switch("--bounded", "A run of its own over all input, with targets of its own; nothing is late."),
        Option(
            "--from", "With --bounded, of a topic: from this message time.", name="start", metavar="TIME", read=moment
        ),
        Option(
            "--to", "With --bounded, of a topic: before this message time.", name="end", metavar="TIME", read=moment
        ),
        _switch("--continuous", "Take in what comes, until `onlyonce stop`, SIGTERM or Ctrl-C."),
        _switch(
            "--standby",
            "With --continuous: if a driver is running, start Spark, wait for its end, then take its place.",
        ),
        Option(
            "--every",
            "With --continuous: the seconds between two polls for new input; by default 5.",
            float,
            metavar="SECONDS",
            least=0,
        ),
        Option("--max-files", "Most files in one batch.", int, least=1),
        _switch("--dry-run", "Say what would be read; write nothing."),
        MASTER,
        FILES,
        RUN_ID,
        DAG_ID,
    ),
    "backfill": (
        _pipeline(),
        Option(
            "--from",
            "Windows that start here or later: 2013-01-31, or with 05:00Z.",
            name="start",
            metavar="TIME",
            read=written,
        ),
        Option(
            "--to",
            "And before this. A time without a zone is in the zone of the windows.",
            name="stop",
            metavar="TIME",
            read=written,
        ),
        _switch(
            "--late-only",
            "Only windows with late records that are not in their result yet; without --from and --to all of them.",
        ),
        Option("--output", "Only this output, with those made from it; by default all with windows."),
        Option(
            "--lookups",
            "If the output has lookups: 'then', the versions that each window saw; or 'now', the newest.",
            default="then",
            metavar="WHICH",
            read=_then_or_now,
        ),
        _switch("--dry-run", "Say which windows, and what each sink would do; write nothing."),
        MASTER,
        FILES,
        RUN_ID,
        DAG_ID,
    ),
    "pull": (_pipeline(), FILES, RUN_ID),
    "deliver": (
        _any_pipeline("One pipeline, or a bounded run of it; by default all."),
        Option("--output", "Only this output."),
        _switch("--retry-dead", "Send dead letters and rejected rows again too."),
        FILES,
    ),
    "finalize": (_any_pipeline("One pipeline with its bounded runs; by default all."), FILES),
    "gc": (_any_pipeline("One pipeline with its bounded runs; by default all."), FILES),
    "maintain": (
        _any_pipeline("One pipeline; by default all."),
        DRY_RUN,
        FILES,
    ),
    "sweep": (
        DRY_RUN,
        Option(
            "--older-than",
            "Remove files older than this; by default ONLYONCE_KEEP_TEMPORARIES_HOURS, or 24.",
            float,
            metavar="HOURS",
            least=0,
        ),
        FILES,
    ),
    "audit": (
        _any_pipeline("One pipeline with its bounded runs; by default all that the log has."),
        Option(
            "--grace",
            "Minutes without a heartbeat after which unfinished work counts as abandoned.",
            int,
            default=AUDIT_GRACE_MINUTES,
        ),
        _switch("--data", "Count the rows of the tables too, against the log. Reads every row once."),
        FILES,
    ),
    "plan": (
        _any_pipeline("A declared pipeline; by default all."),
        _switch("--yes", "Do what the changes need: new incarnations, a run, backfills."),
        MASTER,
        FILES,
        RUN_ID,
    ),
    "reprocess": (
        _pipeline(),
        _switch("--invalid", "Invalid records."),
        _switch("--expired", "Records from before the dedup horizon."),
        Option("--batch", "Only of this receive batch.", int, least=0),
        Option("--reason", "Only with this text in their reason.", metavar="TEXT"),
        YES,
        MASTER,
        FILES,
        RUN_ID,
    ),
    "forget": (
        _pipeline(),
        Option(
            "--where",
            "Whose records: \"user = 'u17'\", or several with AND. Columns of text or whole numbers.",
            metavar="CONDITION",
            needed=True,
        ),
        Option("--by", "Who asked for it, for the receipt; by default the user of this shell.", metavar="NAME"),
        Option(
            "--leave",
            "Leave out an output whose target is gone for good, and name it in the receipt; several as 'a,b'.",
            default="",
            metavar="OUTPUT",
            read=comma_list,
        ),
        _switch("--ids", "Forget the record ids too: a re-delivery is then a new record."),
        YES,
        MASTER,
        FILES,
        RUN_ID,
    ),
    "doctor": (
        _any_pipeline("One pipeline with its bounded runs, and findings that belong to no pipeline; by default all."),
        _switch("--fix", "Carry out the repairs that lose nothing."),
        _switch("--yes", "With --fix: also the repairs that can't be undone."),
        Option(
            "--grace",
            "Minutes without a heartbeat after which a driver counts as dead.",
            float,
            default=DRIVER_GRACE_MINUTES,
            least=0,
        ),
        Option("--master", "Spark's master, for repairs that need a run."),
        FILES,
    ),
    "drop": (
        Option(
            "pipeline",
            "A pipeline, or a bounded run of it, like flights@1.",
            name="name",
            metavar="PIPELINE",
            needed=True,
        ),
        Option("--output", "Only this output, with those made from it."),
        _switch("--tables", "The tables of its sinks too, in Delta and PostgreSQL."),
        YES,
        FILES,
    ),
    "alerts": (
        Option(
            "--lag-minutes",
            "Raise an alert for input that waits longer than this; by default ONLYONCE_ALERT_LAG_MINUTES.",
            float,
            least=0,
        ),
        FILES,
    ),
    "ask_sources": (replace(FILES, own=True),),
    "conform": (_pipeline(), MASTER, FILES),
}


def parse(job: str, argv: list[str]) -> argparse.Namespace:
    """Parse a job's arguments by its options. Each job accepts `--json`, for the program that prints its report.

    argparse ends the process and prints the usage if they can't be parsed. Raise Refused if `read` refuses a value.
    """
    parser = argparse.ArgumentParser(prog=f"onlyonce {job}", allow_abbrev=False)
    for option in JOBS[job]:
        _add(parser, option)
    parser.add_argument("--json", action="store_true", help="Print the report as JSON.")
    found = parser.parse_args(argv)
    for option in JOBS[job]:
        value = getattr(found, option.dest)
        if option.read and value is not None:
            setattr(found, option.dest, _read(option, value))
    if RUN_ID in JOBS[job]:
        found.run_id = found.run_id or f"shell__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}_{uuid4().hex[:6]}"
    return found


def _read(option: Option, text: str) -> Any:
    assert option.read
    try:
        return option.read(text)
    except Refused as error:
        raise Refused(f"{option.flag}: {error.what}", data=error.data, hint=error.hint) from error


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.positional:
        parser.add_argument(option.dest, nargs=None if option.needed else "?", help=option.help)
    elif option.kind is bool:
        parser.add_argument(option.flag, dest=option.dest, action="store_true", help=option.help)
    else:
        several = {"action": "append"} if option.kind is Path else {}
        parser.add_argument(
            option.flag, dest=option.dest, type=option.kind, default=option.default, required=option.needed,
            metavar=option.metavar, help=option.help, **several,  # type: ignore[arg-type]
        )  # fmt: skip


def words(job: str, given: Mapping[str, Any]) -> list[str]:
    """Return a job's arguments for the given values, by the options' names in Python; paths become absolute."""
    return [word for option in JOBS[job] for word in _words(option, given.get(option.dest))]


def _words(option: Option, value: Any) -> list[str]:
    if value is None or value is False or value == option.default:
        return []
    if value is True:
        return [option.flag]
    if option.kind is Path:
        return [word for path in value for word in (option.flag, str(Path(path).resolve()))]
    if option.positional:
        return [str(value)]
    # One word if the value could be taken for an option.
    return [f"{option.flag}={value}"] if str(value).startswith("-") else [option.flag, str(value)]
