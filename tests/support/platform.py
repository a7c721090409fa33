"""A platform for a test: its folder, its database, its runs in this process or killed in one of their own."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg2
import pytest

from onlyonce import settings
from onlyonce.core.runs import Report
from onlyonce.database.connect import forget_connections
from onlyonce.tables import opening, stores
from onlyonce.testing.scratch import JOB_TIMEOUT, ONE_BY_ONE, ScratchPlatform, Server, free_port

__all__ = ["JOB_TIMEOUT", "Platform", "Server", "free_port", "multiset"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Platform(ScratchPlatform):
    """One platform under test."""

    @classmethod
    def make(cls, server: Server, home: Path, pipelines: str) -> Platform:
        """A folder and a database."""
        database = server.new_database()
        environment = {
            "ONLYONCE_HOME": str(home),
            "ONLYONCE_DATABASE_URL": server.url("writer", database),
            "ONLYONCE_READER_URL": server.url("reader", database),
            "ONLYONCE_PIPELINES": str(ROOT / pipelines),
            **ONE_BY_ONE,
        }
        home.mkdir(parents=True, exist_ok=True)
        return cls(home, environment, database)

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this the platform of this process."""
        for key, value in self.environment.items():
            monkeypatch.setenv(key, value)

    def give(self, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
        """More settings, for this process and for the runs of the platform."""
        self.environment.update(environment)
        self.enter(monkeypatch)

    def put(self, pipeline: str, name: str, records: list[Any]) -> Path:
        """Put a file into the inbox as a producer should: complete at once. A str is a line as it is."""
        folder = self.home / "inbox" / pipeline
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join((r if isinstance(r, str) else json.dumps(r, separators=(",", ":"))) + "\n" for r in records)
        partial = folder / f".{name}"
        partial.write_text(text)
        return partial.rename(folder / name)

    def run(self, *arguments: str) -> Report:
        """Run a pipeline in this process."""
        from onlyonce.run import stream

        return stream.main([*arguments, "--master", "local[2]"])

    def backfill(self, *arguments: str) -> Report:
        """Backfill a pipeline in this process."""
        from onlyonce.outputs import backfill

        return backfill.main([*arguments, "--master", "local[2]"])

    def sql(self, statement: str, url: str | None = None) -> pd.DataFrame:
        """The rows of a statement by the writer, or another role."""
        with psycopg2.connect(
            (url or self.environment["ONLYONCE_DATABASE_URL"]).replace("+psycopg2", "")
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            names = [c.name for c in cursor.description or []]
            return pd.DataFrame(cursor.fetchall() if names else [], columns=names)

    def end_sessions(self) -> None:
        """The drivers of this process end, as they do with a process of their own."""
        forget_connections()
        self.sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'onlyonce/%' "
            "AND datname = current_database() AND pid <> pg_backend_pid()"
        )

    def events(self, pipeline: str = "shop") -> pd.DataFrame:
        """The table `events`."""
        return opening.table(settings.data_location(pipeline) / "events").to_pandas()

    def table(self, name: str) -> pd.DataFrame:
        """A Delta table that an output writes; empty when there is none."""
        at = settings.tables_location() / name
        return opening.table(at).to_pandas() if stores.anything(at / "_delta_log") else pd.DataFrame()


def multiset(frame: pd.DataFrame, *columns: str) -> Counter[Any]:
    """The rows of a frame as a multiset: loss and duplicates can't cancel out."""
    chosen = frame[list(columns)] if columns else frame
    return Counter(map(tuple, chosen.astype(object).where(chosen.notna(), None).itertuples(index=False)))
