"""A sink whose units are in the platform's log, as the suite sees it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from onlyonce.commitlog.lineages import Driver
from onlyonce.model.units import UnitId
from onlyonce.testing.suite.cases import PARTITIONS, Row, Rows, UnderTest, partition_of, pieces
from onlyonce.testing.suite.log import Log

NUMBERS = itertools.count()


@dataclass
class OfLog(UnderTest):
    """A sink whose units are in the platform's log."""

    log: Log
    text: str = "text"
    output: str = field(init=False)
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        # Tests share a platform: to make one takes longer than a case.
        self.output = f"kept{next(NUMBERS)}"
        self.driver = self.log.start("shop", self.output)

    def restart(self) -> None:
        """The epoch is bumped; sessions of the older driver are ended."""
        self.driver = self.log.restart(self.driver)

    def unit(self, batch: int) -> UnitId:
        """The unit of a batch's first partition."""
        return UnitId(self.driver.lineage, batch, self.output, 0)

    def brought(self, rows: Rows, cut: int) -> Iterator[tuple[int, list[list[Row]]]]:
        """Each partition's rows, with the column of texts under its name, in the pieces in which tasks bring them."""
        for partition in range(PARTITIONS):
            mine = [
                {self.text if name == "text" else name: value for name, value in row.items()}
                for row in rows
                if partition_of(row) == partition
            ]
            yield partition, pieces(mine, cut)
