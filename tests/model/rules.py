"""The rules of the protocol that the model can be explored with or without. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """What drivers and `onlyonce reset` do, as the protocol has it. Each one switched off alone is a mutant.

    epoch_is_checked                      each transaction holds the epoch of its database and compares it
    found_unit_is_skipped                 a data unit that is there is compared and not written again
    older_sessions_are_ended              who raises an epoch ends the older drivers' sessions in that database first
    table_is_looked_at_first              a transaction that the Delta table has is not committed again
    begin_asks_all                        a batch begins again when no database has a unit of it
    reset_asks_all                  a batch is withdrawn when no database has a unit of it
    fence_raised_in_all_before_relied_on  `onlyonce reset` raises the epoch in each database before it asks
    away_is_refusal                       a database that can't be asked is no "no"
    reference_may_be_withdrawn              a reference unit whose rows never got to the table is no half of a batch
    withdrawn_transaction_is_taken        such a reference unit goes after its Delta transaction was taken, so nobody lands it
                                          later
    landed_is_told_from_taken             rows that get to the table just before that are no transaction of ours
    half_written_is_finished              `onlyonce reset` ends a half-written batch by what the log knows of it
    closed_incarnation_takes_no_driver           the epoch of an incarnation that was closed is not raised for a driver
    """

    epoch_is_checked: bool = True
    found_unit_is_skipped: bool = True
    older_sessions_are_ended: bool = True
    table_is_looked_at_first: bool = True
    begin_asks_all: bool = True
    reset_asks_all: bool = True
    fence_raised_in_all_before_relied_on: bool = True
    away_is_refusal: bool = True
    reference_may_be_withdrawn: bool = True
    withdrawn_transaction_is_taken: bool = True
    landed_is_told_from_taken: bool = True
    half_written_is_finished: bool = True
    closed_incarnation_takes_no_driver: bool = True

    def without(self, *names: str) -> Rules:
        """The same rules, some switched off."""
        return replace(self, **dict.fromkeys(names, False))


NOW = Rules()
BEFORE = NOW.without(
    "begin_asks_all", "reset_asks_all", "fence_raised_in_all_before_relied_on", "reference_may_be_withdrawn",
    "half_written_is_finished", "closed_incarnation_takes_no_driver",
)  # fmt: skip
"""The rules of before the review that found the holes."""
