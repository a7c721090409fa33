"""When registered input arrived: as its registry has it, or as it was corrected after a driver's clock was ahead. Pure.

Arrival times never move back by themselves: they decide which ids are removed and which input is silent. A correction
is made by a person's command (`onlyonce doctor --fix --yes`), and is a fact of the log. Registries are append-only and
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Corrections:
    """The corrected arrivals of an instance.

    arrival    when the corrected input counts as arrived, at the latest; None: nothing was corrected
    registered the number of the last batch that each registry had then, by the registry's name
    """

    arrival: datetime | None = None
    registered: Mapping[str, int] = field(default_factory=dict)

    def of(self, registry: str, batch_no: int, seen: datetime) -> datetime:
        """Return when a batch of a registry arrived, given what the registry says."""
        if self.arrival is None or batch_no > self.registered.get(registry, -1):
            return seen
        return min(seen, self.arrival)

    def following(self, now: datetime, registry: str, batch_no: int | None, seen: datetime | None) -> datetime:
        """Return when input that is registered now arrives, given the last batch of its registry: never before that
        one."""
        return now if batch_no is None or seen is None else max(now, self.of(registry, batch_no, seen))


NOTHING = Corrections()
