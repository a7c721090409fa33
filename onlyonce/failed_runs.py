"""Remember why the last command of a pipeline failed at a shell, and name the last run of each pipeline that failed.

The commit log has the ends of Airflow's runs and of continuous runs. The end of a run at a shell is in a file of the
home, below its logs, until the same pipeline's next command ends well.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from onlyonce import settings
from onlyonce.console import Row, plain
from onlyonce.core.errors import OnlyonceError, Refused, Superseded
from onlyonce.core.runs import first_line

TABLE = "last runs that failed"
"""The table of the doctor's report that has them."""


@dataclass(frozen=True)
class RunEnd:
    """How a run of a pipeline ended.

    exit_code   0: well
    error       the first line of its error
    whole       where the whole error is
    """

    pipeline: str
    command: str
    ended_at: datetime
    exit_code: int
    error: str | None
    whole: str

    @property
    def said(self) -> str:
        """Return that it failed, when and why, for a person."""
        return f"the last run of {self.pipeline} failed at {plain(self.ended_at)} ({self.command}): {self.error}"

    @property
    def failed(self) -> bool:
        """Return whether it failed; not if it left the work to another driver."""
        return self.exit_code not in (0, Superseded.exit_code)


@contextmanager
def remembered(command: str, pipeline: str) -> Iterator[None]:
    """Store the error with which the block ends in a file of the home; remove the file if the block ends well.

    If the home can't be written to, nothing is remembered: the error itself is raised in any case.
    """
    try:
        yield
    except Superseded:
        raise
    except Exception as error:
        with suppress(OSError, Refused):
            _keep(command, pipeline, error)
        raise
    forget(pipeline)


def forget(pipeline: str) -> None:
    """Remove what is remembered of a pipeline that is dropped."""
    with suppress(OSError):
        _file(settings.home(), pipeline).unlink(missing_ok=True)


def _keep(command: str, pipeline: str, error: Exception) -> None:
    settings.inside_home(settings.home(), "logs", "errors")
    file = _file(settings.home(), pipeline)
    code = error.exit_code if isinstance(error, OnlyonceError) else 1
    end = RunEnd(pipeline, f"onlyonce {command} {pipeline}", datetime.now(UTC), code, first_line(error), str(file))
    text = "".join(traceback.format_exception(error)).splitlines()
    file.write_text(json.dumps(asdict(end) | {"traceback": text}, default=str, indent=2))


def _file(home: Path, pipeline: str) -> Path:
    return home / "logs" / "errors" / f"last-{quote(pipeline, safe='')}.json"


def at_shell() -> Iterator[RunEnd]:
    """Yield the ends that files of the home have. A file that can't be read is passed over."""
    for file in sorted((settings.home() / "logs" / "errors").glob("last-*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            row = json.loads(file.read_text())
            row["ended_at"] = datetime.fromisoformat(row["ended_at"])
            del row["traceback"]
            yield RunEnd(**row | {"whole": str(file)})


def found(ends: Iterable[Row], status: Iterable[Row], only: str | None) -> list[RunEnd]:
    """Return the last run of each pipeline if it failed and nothing was committed since.

    ends, status   the rows of the queries `last_ends` and `status` of the views
    only           the pipeline that was asked for; None: all
    """
    of_log = [
        RunEnd(
            row["pipeline"], f"run {row['run_id']}", row["ended_at"], row["exit_code"], row["error"],
            f"the log of that run; {row['source']} has its first line",
        )
        for row in ends
    ]  # fmt: skip
    return last_failed([*of_log, *at_shell()], {row["pipeline"]: row["last_commit"] for row in status}, only)


def last_failed(ends: Iterable[RunEnd], commits: Mapping[str, datetime | None], only: str | None) -> list[RunEnd]:
    """Return the last end of each pipeline if it is a failure that no later commit followed. Pure.

    commits   when each pipeline last committed a batch
    only      the pipeline that was asked for; None: all
    """
    last: dict[str, RunEnd] = {}
    for end in sorted(ends, key=lambda one: one.ended_at):
        last[end.pipeline] = end
    found = []
    for name, end in sorted(last.items()):
        committed = commits.get(name)
        if end.failed and only in (None, name) and (committed is None or committed < end.ended_at):
            found.append(end)
    return found
