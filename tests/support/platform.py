"""A platform for a test: its folder, its database, its runs in this process or killed in one of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import psycopg2
import pytest
from deltalake import DeltaTable

from jobs import settings
from jobs.model.report import Report

ROOT = Path(__file__).resolve().parents[2]
JOB_TIMEOUT = 300


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """The session's PostgreSQL."""

    folder: Path

    def url(self, role: str, database: str | None = None) -> str:
        """The URL of a role, for its own or another database."""
        url = (self.folder / "postgres" / f"{role}.url").read_text().strip()
        return url if database is None else url.rsplit("/", 1)[0] + "/" + database

    def new_database(self) -> str:
        """A fresh database, owned by the writer."""
        name = f"test_{uuid4().hex[:12]}"
        self._do(f'CREATE DATABASE "{name}" OWNER onlyonce_writer')
        return name

    def drop(self, name: str) -> None:
        """End a database with its sessions; what is dropped is not written to disk when the server stops."""
        self._do(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _do(self, statement: str) -> None:
        session = psycopg2.connect(self.url("admin").replace("+psycopg2", ""))
        session.autocommit = True
        session.cursor().execute(statement)
        session.close()


@dataclass(frozen=True)
class Platform:
    """One platform under test."""

    home: Path
    environment: dict[str, str]
    database: str = ""

    @classmethod
    def make(cls, server: Server, home: Path, pipelines: str) -> Platform:
        """A folder and a database."""
        database = server.new_database()
        environment = {
            "ONLYONCE_HOME": str(home),
            "ONLYONCE_DATABASE_URL": server.url("writer", database),
            "ONLYONCE_READER_URL": server.url("reader", database),
            "ONLYONCE_PIPELINES": str(ROOT / pipelines),
        }
        home.mkdir(parents=True, exist_ok=True)
        return cls(home, environment, database)

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this the platform of this process."""
        for key, value in self.environment.items():
            monkeypatch.setenv(key, value)

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
        from jobs import stream

        return stream.main([*arguments, "--master", "local[2]"])

    def backfill(self, *arguments: str) -> Report:
        """Backfill a pipeline in this process."""
        from jobs import backfill

        return backfill.main([*arguments, "--master", "local[2]"])

    def start(self, *arguments: str, job: str = "stream", **environment: str) -> subprocess.Popen[str]:
        """Start a run (or another job) in a process and session of its own."""
        command = [sys.executable, "-m", f"jobs.{job}", *arguments, "--master", "local[2]"]
        return subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | self.environment | environment,
        )  # fmt: skip

    def run_killed(
        self, point: str, *arguments: str, nth: int = 1, action: str = "kill", job: str = "stream"
    ) -> tuple[int, str]:
        """Run until a fail-point strikes; gives exit code and output."""
        folder = self.home / "failpoints"
        folder.mkdir(exist_ok=True)
        process = self.start(
            *arguments, job=job, ONLYONCE_FAILPOINTS=f"{point}:{nth}:{action}", ONLYONCE_FAILPOINT_DIR=str(folder)
        )
        output, _ = process.communicate(timeout=JOB_TIMEOUT)
        return process.returncode, output

    def struck(self, point: str) -> int:
        """How often a fail-point was passed by killed runs."""
        passes = self.home / "failpoints" / point
        return passes.stat().st_size if passes.exists() else 0

    def sql(self, statement: str, url: str | None = None) -> pd.DataFrame:
        """The rows of a statement by the writer, or another role."""
        with psycopg2.connect(
            (url or self.environment["ONLYONCE_DATABASE_URL"]).replace("+psycopg2", "")
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            names = [c.name for c in cursor.description or []]
            return pd.DataFrame(cursor.fetchall() if names else [], columns=names)

    def events(self, pipeline: str = "shop") -> pd.DataFrame:
        """The table `events`."""
        return DeltaTable(str(settings.data_dir(pipeline) / "events")).to_pandas()

    def table(self, name: str) -> pd.DataFrame:
        """A Delta table that an output writes; empty when there is none."""
        path = settings.tables_dir() / name
        return DeltaTable(str(path)).to_pandas() if path.exists() else pd.DataFrame()


def multiset(frame: pd.DataFrame, *columns: str) -> Counter[Any]:
    """The rows of a frame as a multiset: loss and duplicates can't cancel out."""
    chosen = frame[list(columns)] if columns else frame
    return Counter(map(tuple, chosen.astype(object).where(chosen.notna(), None).itertuples(index=False)))
