"""How far cores pay: computed from what one record costs the executors and PostgreSQL, and what one batch costs the
driver.

Pure.

All of it was measured on one machine. What is not in it: a network that is slower than a disk, executors that wait for
each other, other work of PostgreSQL.
"""

from __future__ import annotations

from dataclasses import dataclass

A_CORE = 250_000
"""Records of a batch for each core: about a second of its work."""
TASKS_A_CORE = 1
CORES = (2, 10, 100, 1000)
PAYS = 0.5
"""Cores pay as long as the last ones bring half of what the first ones did."""


@dataclass(frozen=True)
class Costs:
    """Seconds: of a core for a record, of PostgreSQL's processor for a record, of the driver for a batch and for each
    of its partitions."""

    of_record: float
    of_postgres: float
    of_batch: float
    of_partition: float


def rate(costs: Costs, cores: int, postgres_cores: int) -> float:
    """Records a second: the tasks of a batch side by side with PostgreSQL, whichever takes longer; then what the driver
    does alone."""
    records = cores * A_CORE
    beside = max(records * costs.of_record / cores, records * costs.of_postgres / postgres_cores)
    return records / (beside + costs.of_batch + cores * TASKS_A_CORE * costs.of_partition)


def last_that_pays(costs: Costs, postgres_cores: int, most: int = 10_000) -> int:
    """The number of cores up to which one more core brings at least PAYS of what the first one does; `most` where all
    do."""
    first = rate(costs, 1, postgres_cores)
    for cores in range(1, most):
        if rate(costs, cores + 1, postgres_cores) - rate(costs, cores, postgres_cores) < PAYS * first:
            return cores
    return most


def table(costs: Costs, postgres_cores: int) -> dict[str, dict[str, float]]:
    """Records a second, and how much of the cores is used, by their number."""
    found = {}
    for cores in CORES:
        found[str(cores)] = {
            "records_per_second": round(rate(costs, cores, postgres_cores)),
            "of_proportional": round(rate(costs, cores, postgres_cores) / (cores / costs.of_record), 2),
        }
    return found
