"""Wait in Airflow's triggerer, without a worker's slot: for the end of a continuous run, or until windows are closed.

Triggers share one event loop, so each poll of the log runs on a thread. A trigger has only names and times; the
triggerer itself has the reader's URL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from onlyonce.airflow import log
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log import SETTING, Asked, not_yet
from onlyonce.core import stored_names
from onlyonce.core.errors import CommitStateUnknown, OnlyonceError, Retryable
from onlyonce.core.runs import LongRun

# A pool of our own, separate from the windows' one: a query to an unreachable database lasts a minute.
_LOOKS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="onlyonce-long-run")


LONG_RUN_TRIGGER_PATH = stored_names.LONG_RUN_TRIGGER
"""Airflow stores it with each waiting task, and imports the trigger by it."""


class LongRunEnd(BaseTrigger):
    """Fires when no continuous run of the pipeline is alive. It decides nothing: the task then reads the log itself.

    Its event is {"problem": None}, or the text with which the task fails. When a person ends the waiting task (mark as
    failed or success, clear), the driver that this task watches is asked to stop.
    """

    EVERY_SECONDS = 5.0
    LOST_TWICE = 2
    """How often a heartbeat must be missed: after an outage of the database it may come just after the first poll."""

    def __init__(self, pipeline: str, supervisor: str) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.supervisor = supervisor

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow stores of the trigger, in plain text."""
        return (LONG_RUN_TRIGGER_PATH, {"pipeline": self.pipeline, "supervisor": self.supervisor})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll every few seconds, as long as the driver is alive or the database unreachable."""
        missed, problem = 0, None
        while True:
            try:
                known = await self._on_thread(lambda: log.read_long_run(self.pipeline))
                missed = 0 if known and known.alive else missed + 1
                if missed and (known is None or not known.lost or missed >= self.LOST_TWICE):
                    break
            except (Retryable, CommitStateUnknown) as error:
                self.log.warning("the commit log did not answer: %s", error.what)
            except OnlyonceError as error:
                problem = str(error)
                break
            await asyncio.sleep(self.EVERY_SECONDS)
        yield TriggerEvent({"problem": problem})

    async def on_kill(self) -> None:
        """Ask the driver to stop; Airflow calls it when a person has ended the waiting task, and allows it 30
        seconds."""
        await self._on_thread(lambda: log.ask_stop(self.supervisor))

    @staticmethod
    async def _on_thread(look: Any) -> LongRun | Any:
        return await asyncio.get_running_loop().run_in_executor(_LOOKS, look)


# A pool of our own: queries to an unreachable database last a minute each, and others need the loop's own threads.
_WINDOW_LOOKS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="onlyonce-look")


WINDOWS_TRIGGER_PATH = stored_names.WINDOWS_TRIGGER
"""Airflow stores it with each waiting task, and imports the trigger by it."""


class OpenWindows(BaseTrigger):
    """Fires when the windows are closed, when they can no longer close, or when the time is up.

    Its event is {"problem": None}, or the text with which the task fails. The triggerer may be unable to import the
    declarations, if only workers have their bundle. Then its event is "look" once a minute, and the task checks itself.
    `until` is in seconds since 1970, so that a triggerer that starts again does not begin the wait again.
    """

    EVERY_SECONDS = 5.0

    LOOK_SECONDS = 60.0

    def __init__(self, asked: dict[str, Any], until: float, declared: Sequence[str] = ()) -> None:
        super().__init__()
        self.declared = list(declared)
        self.asked = asked
        self.until = until

    @classmethod
    def of(cls, asked: Asked, until: float, declared: Declared = SETTING) -> OpenWindows:
        """Return the trigger for what a run asks for."""
        return cls(asdict(asked), until, declared.names)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow stores of the trigger, in plain text."""
        return (
            WINDOWS_TRIGGER_PATH,
            {"asked": self.asked, "until": self.until, "declared": self.declared},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll every few seconds; at least once."""
        reason, known = "", await self._on_thread(self._knows)
        if not known and time.time() < self.until:
            await asyncio.sleep(self.LOOK_SECONDS)
            yield TriggerEvent({"problem": None, "look": True, "until": self.until})
            return
        while True:
            latest = await self._on_thread(self._look)
            if latest is None or latest["final"] or time.time() >= self.until:
                break
            if latest["text"] != reason:
                reason = latest["text"]
                self.log.info("the backfill waits: %s", reason)
            await asyncio.sleep(self.EVERY_SECONDS)
        yield TriggerEvent({"problem": latest and latest["text"]})

    def _knows(self) -> bool:
        try:
            Declared(tuple(self.declared)).one(self.asked["pipeline"])
        except OnlyonceError:
            return False
        return True

    @staticmethod
    async def _on_thread(look: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(_WINDOW_LOOKS, look)

    def _look(self) -> dict[str, Any] | None:
        try:
            reason = not_yet(Asked(**self.asked), Declared(tuple(self.declared)))
        except OnlyonceError as error:
            return {"text": str(error), "final": True}
        return {"text": reason, "final": False} if reason else None
