"""The trigger that waits for windows which are still open, by looking at the commit log.

It runs in Airflow's triggerer, beside others on one event loop, so each look at the log is on a thread. It has only
names and times; the triggerer itself has the reader's URL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log.asked_windows import Asked
from onlyonce.airflow.log.backfill_log import SETTING, not_yet
from onlyonce.model import stored_names
from onlyonce.model.errors import OnlyonceError

# A pool of our own: looks at a database that is away last a minute each, and others need the loop's own threads.
_LOOKS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="onlyonce-look")


PATH = stored_names.WINDOWS_TRIGGER
"""Airflow stores it with each waiting task, and imports the trigger by it."""


class OpenWindows(BaseTrigger):
    """Fires when the windows are closed, when that can't help any more, or when the time is up.

    Its event is {"problem": None}, or the text of what the task fails with. Where the triggerer can't import the
    declarations (they are in a bundle that only workers have) it says "look" once a minute, and the task looks itself.
    `until` is in seconds since 1970, so that a triggerer that starts again does not begin the wait anew. Used by
    `onlyonce.airflow.operators.backfill_job`.
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
        """The trigger for what a run asks for."""
        return cls(asdict(asked), until, declared.names)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow stores of it, in plain text."""
        return (
            PATH,
            {"asked": self.asked, "until": self.until, "declared": self.declared},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every few seconds; at least once."""
        reason, known = "", await self._on_thread(self._knows)
        if not known and time.time() < self.until:
            await asyncio.sleep(self.LOOK_SECONDS)
            yield TriggerEvent({"problem": None, "look": True})
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
        return await asyncio.get_running_loop().run_in_executor(_LOOKS, look)

    def _look(self) -> dict[str, Any] | None:
        try:
            reason = not_yet(Asked(**self.asked), Declared(tuple(self.declared)))
        except OnlyonceError as error:
            return {"text": str(error), "final": True}
        return {"text": reason, "final": False} if reason else None
