"""Carries out the repairs of `onlyonce doctor`: each finding names a command, and the command's own entry point runs.

Who calls it: `onlyonce.operate.doctor`. A repair that fails does not raise; its outcome tells of it. Each repair is
noted in <home>/logs/doctor.log.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from onlyonce import settings
from onlyonce.commitlog.arrivals import Arrivals
from onlyonce.commitlog.driver_clock import DriverClock
from onlyonce.commitlog.operate.health import Health
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.model import stored_names
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.operate.finding import Finding
from onlyonce.model.report import Report
from onlyonce.model.storage.location import location
from onlyonce.receive import catalog_rebuild
from onlyonce.settings import home_folders
from onlyonce.sources import registry
from onlyonce.storage import stores

log = structlog.get_logger()


def may(finding: Finding, yes: bool) -> bool:
    """Whether the repair may be carried out: not by a person, and what gives something up only when that was said."""
    return finding.repair.by != "person" and (yes or not finding.repair.for_good)


def repaired(database: Database, finding: Finding, asked: argparse.Namespace) -> dict[str, Any]:
    """Carry out one repair, and note what came of it."""
    try:
        carry_out(database, finding, asked)
        outcome = "done"
    except OnlyonceError as error:
        outcome = f"failed: {error}"
    except OSError as error:
        outcome = f"failed: {error.strerror}"
    noted = {"finding": finding.kind, "where": finding.where, "repair": finding.repair.command, "outcome": outcome}
    log.info("repair", **noted)
    journal = home_folders.inside(settings.home(), "logs") / "doctor.log"
    with journal.open("a") as lines:
        lines.write(json.dumps({"at": datetime.now(UTC).isoformat(), **noted}) + "\n")
    return noted


def carry_out(database: Database, finding: Finding, asked: argparse.Namespace) -> None:
    """Carry out a finding's repair. Raises what its entry point does."""
    by, arguments = finding.repair.by, finding.repair.arguments
    if by in ("run", "backfill", "release"):
        _entry(by)([*arguments, *_common(asked)])
    elif by == "lineage":
        from onlyonce.run import lineage

        lineage.new(arguments[0], yes=True)
    elif by == "drop":
        from onlyonce.operate import drop

        drop.main([*arguments, *_files(asked)])
    elif by == "finalize":
        from onlyonce.sinks.files import finalize

        finalize.main([*arguments, *_files(asked)])
    elif by == "deliver":
        from onlyonce.sinks.outbox import deliver

        deliver.main([*arguments, *_files(asked)])
    elif by == "migrate":
        migrate(database.url)
    elif by == "ids":
        instance, of, bucket = arguments
        catalog_rebuild.again(
            database, instance, settings.data_location(instance) / stored_names.EVENTS_FOLDER, of, bucket
        )
    elif by == "filter":
        instance, *keys = arguments
        for key in keys:
            Health(database).mend(instance, key)  # type: ignore[misc]
    elif by == "arrivals":
        DriverClock(database).check()  # the next arrival has this clock
        Arrivals(database).correct(arguments[0], lambda: registry.last_batches(arguments[0]))
    else:
        assert by == "files", by
        for file in arguments:
            at = location(file)
            stores.of(at).delete(at)


def _entry(by: str) -> Callable[[list[str]], Report]:
    """The entry points that start Spark, which only a repair needs."""
    from onlyonce.outputs import backfill
    from onlyonce.outputs.releases import release
    from onlyonce.run import stream

    entries: dict[str, Callable[[list[str]], Report]] = {
        "run": stream.main, "backfill": backfill.main, "release": release.main,
    }  # fmt: skip
    return entries[by]


def _common(asked: argparse.Namespace) -> list[str]:
    master = ["--master", asked.master] if asked.master else []
    return [*master, *_files(asked)]


def _files(asked: argparse.Namespace) -> list[str]:
    return [word for file in asked.pipelines or [] for word in ("--pipelines", str(file))]
