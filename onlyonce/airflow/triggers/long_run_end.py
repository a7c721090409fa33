"""The trigger that watches a long run's heartbeat in the commit log.

It runs in Airflow's triggerer: no worker's slot is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from onlyonce.airflow.log import long_run_log
from onlyonce.model import stored_names
from onlyonce.model.errors import CommitStateUnknown, OnlyonceError, Retryable
from onlyonce.model.run.long_run import LongRun

# A pool of our own, as that of `onlyonce.airflow.triggers.open_windows`: a look at a database that is away lasts a
# minute.
_LOOKS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="onlyonce-long-run")


PATH = stored_names.LONG_RUN_TRIGGER
"""Airflow stores it with each waiting task, and imports the trigger by it."""


class LongRunEnd(BaseTrigger):
    """Fires when no long run of the pipeline is alive. It decides nothing: the task then reads the log itself.

    Its event is {"problem": None}, or the text of what the task fails with. Used by
    `onlyonce.airflow.operators.stream_job`. When a person kills the waiting task (mark as failed or success, clear),
    the driver that this task watches is asked to stop.
    """

    EVERY_SECONDS = 5.0
    LOST_TWICE = 2
    """So often must a heartbeat be missed: after an outage of the database it may come just after the first look."""

    def __init__(self, pipeline: str, supervisor: str) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.supervisor = supervisor

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow stores of it, in plain text."""
        return (PATH, {"pipeline": self.pipeline, "supervisor": self.supervisor})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every few seconds, as long as the driver is alive or the database away."""
        missed, problem = 0, None
        while True:
            try:
                known = await self._on_thread(lambda: long_run_log.look(self.pipeline))
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
        """Ask the driver to stop; Airflow calls it when a person has ended the waiting task, and gives it 30
        seconds."""
        await self._on_thread(lambda: long_run_log.ask_stop(self.supervisor))

    @staticmethod
    async def _on_thread(look: Any) -> LongRun | Any:
        return await asyncio.get_running_loop().run_in_executor(_LOOKS, look)
