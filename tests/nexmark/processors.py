"""What keeps state of its own in a query: the last ten auctions of each seller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

LAST = 10
SCHEMA = "seller long, auction long, total long, auctions long"


class LastTen(StatefulProcessor):
    """Average price of a seller's last ten auctions, told anew with each that has closed: their sum and their number.

    Auctions are taken in the order in which they expire, when no other one of the seller can expire before. So it does
    not matter in which batches they come.
    """

    def init(self, handle: Any) -> None:
        """What is to be taken, by when it expires, and the prices of the last ones."""
        self.handle = handle
        self.coming = handle.getMapState("coming", "expires long, auction long", "price long")
        self.last = handle.getValueState("last", "prices array<long>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Keep each until its time has come."""
        for frame in rows:
            times = frame["expires"].astype("datetime64[ms]").astype("int64")
            for expires, auction, price in zip(times, frame["auction"], frame["price"], strict=True):
                self.coming.updateValue((int(expires), int(auction)), (int(price),))
                self.handle.registerTimer(int(expires))
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """A row for each auction that has expired."""
        now = expiredTimerInfo.getExpiryTimeInMs()
        last = [int(price) for price in self.last.get()[0]] if self.last.exists() else []
        due = sorted(
            (expires, auction, price) for (expires, auction), (price,) in self.coming.iterator() if expires <= now
        )
        found = []
        for expires, auction, price in due:
            last = [*last, int(price)][-LAST:]
            found.append({"seller": key[0], "auction": auction, "total": sum(last), "auctions": len(last)})
            self.coming.removeKey((expires, auction))
        if found:
            self.last.update((last,))
            yield pd.DataFrame(found)

    def close(self) -> None:
        """Nothing is open."""
