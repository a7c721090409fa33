"""What the outputs with `silence` are made by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tests.support import stateful_shop


class Silences(stateful_shop.Silences):
    """Each key after 20 seconds of silence, with its records so far: without the records themselves."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Nothing."""
        named = (frame.assign(id=None) for frame in rows)
        for _ in super().handleInputRows(key, named, timerValues):
            yield pd.DataFrame({"key": [], "records": []}).astype({"key": "object", "records": "int64"})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """The silences."""
        for frame in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield frame.rename(columns={"shop": "key"})[["key", "records"]]
