"""Which output has which target.

A table or folder holds the rows of one output of one instance only. docs/specification/target.md.

Who calls it: a run or backfill before it makes the table (`onlyonce.outputs.results`), and the drop.
`onlyonce.declare.target_identity` decides whether two targets are the same. Errors: Refused for the target of another
output. Not promised: that nobody writes there without this platform.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place


class Made(NamedTuple):
    """When a run of an output had made its table, and the id of the table; None before the first run, and for a table
    without an id."""

    at: datetime | None
    table_id: str | None


class Targets(Transactions):
    """Which output has which target."""

    @one_transaction
    def claim(self, instance: str, output: str, place: Place, identity: str) -> Made:
        """Make a target the output's own, and let go what it had by another declaration.

        Return what the log says of the table. Raises Refused.
        """
        do(self.connection, "targets", "one_at_a_time")
        asked = {"instance": instance, "output": output, "identity": identity}
        if others := ask(self.connection, "targets", "of_others", **asked):
            other = others[0]
            near = (
                "" if other.identity == identity else f" (one of it and {Place(other.place).where} is inside the other)"
            )
            raise Refused(
                f"output {output} of {instance}: {place.where} belongs to {other.instance}/{other.output}{near}",
                data="nothing of this output was written; a backfill or vacuum of one would remove the rows of "
                "the other",
                hint=f"give this output another target, or end the other one: take {other.output} out of "
                f"{other.instance}, then "
                f"onlyonce drop {other.instance} --output {other.output} --tables",
            )
        do(self.connection, "targets", "release", **asked)
        [found] = ask(self.connection, "targets", "claim", **asked, place=place.text)
        return Made(found.made_at, found.table_id)

    @one_transaction
    def made(self, instance: str, output: str, table_id: str | None) -> None:
        """Note that the output's table is there: from now on a missing one was deleted, and one of another id was
        dropped and made again."""
        do(self.connection, "targets", "made", instance=instance, output=output, table_id=table_id)

    @one_transaction
    def database(self) -> str:
        """Which database this is, by whatever address it was reached."""
        return str(ask(self.connection, "targets", "database")[0].identity)

    @one_transaction
    def of_others(self, instances: list[str]) -> set[str]:
        """The places that outputs of other instances have."""
        return {row.place for row in ask(self.connection, "targets", "taken", instances=instances)}

    @one_transaction
    def forget(self, instances: list[str], outputs: list[str] | None, kept: list[str]) -> None:
        """Of instances that are dropped, or only of some outputs: nothing is theirs any more but what keeps their
        rows."""
        do(self.connection, "targets", "forget", instances=instances, outputs=outputs, kept=kept)

    @one_transaction
    def settle(self, place: str, instance: str) -> None:
        """A table that was removed is nobody's."""
        do(self.connection, "targets", "settle", place=place, instance=instance)
