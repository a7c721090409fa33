"""An entry of an erasure's receipt. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

NOT_SEARCHED = "not searched"


@dataclass(frozen=True)
class Left:
    """A place that still has values of the records, or may have them.

    place  its path, table or name
    found  how many parts of it the search found, or why the search does not read it
    goes   when the values are gone, or what to do so that they go
    """

    place: str
    found: str
    goes: str

    def row(self) -> dict[str, str]:
        """Return the entry as the report shows it."""
        return asdict(self)

    def line(self) -> str:
        """Return the entry as the log stores it."""
        return f"{self.place}: {self.found}; {self.goes}"
