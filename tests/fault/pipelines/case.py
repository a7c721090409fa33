"""A pipeline of a kind that people write, as the harness plays it: what it is given, what befalls it, and what must
come of it."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest

from onlyonce.operate import audit
from onlyonce.run import reset
from tests.fault.lives.cases import OF_SINK, STREAM
from tests.support.cut_records import Record, cut
from tests.support.platform import Platform

DELTA, POSTGRES = OF_SINK["delta"], OF_SINK["postgres"]


class Case:
    """One lifetime of one platform.

    `points`: where it is struck, beside those of each stream; `names`: what is run, in this order; `steps`: how often.
    """

    declared: ClassVar[str]
    points: ClassVar[tuple[str, ...]]
    names: ClassVar[tuple[str, ...]] = ("shop",)
    steps: ClassVar[int] = 2

    def __init__(self, platform: Platform, chance: random.Random, request: pytest.FixtureRequest) -> None:
        self.platform, self.chance, self.request = platform, chance, request
        self.begin()

    @classmethod
    def all_points(cls) -> tuple[str, ...]:
        """Its own points twice: there most is half done."""
        return (*STREAM, *cls.points, *cls.points)

    def begin(self) -> None:
        """Before anything is given."""
        self.files = cut(self.chance, self.records(), self.steps)

    def records(self) -> list[Record]:
        """Of a case of files: all of its distinct records, in the order in which they are first given."""
        raise NotImplementedError

    def give(self, step: int) -> None:
        """What comes before the run of a step."""
        for name in self.names:
            self.platform.put(name, f"{step}.jsonl", self.files[step])

    def after(self, step: int) -> None:
        """What befalls it between a strike and the run that follows it."""

    def check(self) -> None:
        """What is there is what a batch computes."""
        raise NotImplementedError

    def new_incarnation(self, *queries: str) -> None:
        """The checkpoint of each is given up."""
        for query in queries:
            reset.new(query, yes=True)

    def give_setting(self, **environment: str) -> None:
        """Variables of this process and of all runs."""
        self.platform.give(self.request.getfixturevalue("monkeypatch"), **environment)

    def sql(self, statement: str) -> Any:
        """Rows of the database."""
        return self.platform.sql(statement)

    def check_books(self) -> None:
        """Nothing is lost or left between two stations, by the log and by what is in the sinks."""
        assert self.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
        assert audit.main(["--data"]).warnings == []
