"""Decides which kills a crash test makes, groups them into chains, and words the result. Pure.

A chain is a series of kills over one copy of the input. Each run is killed at the next point of the chain; the last run
goes to its end. Then the results are compared with those of an undisturbed run. One comparison judges the whole chain.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onlyonce.declare.pipeline import Output, Pipeline, Postgres, unknown
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_SYSTEM_TIME

Said = Literal["held", "differs", "stopped", "not reached", "not judged"]


@dataclass(frozen=True)
class Strike:
    """A kill at the `nth` pass of a point, which is pass number `at` of all in an undisturbed run."""

    point: str
    nth: int
    at: int

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}"


@dataclass(frozen=True)
class Difference:
    """How the rows of one result differ from the reference: how many are missing, how many are there too often."""

    result: str
    lost: int
    doubled: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chain:
    """What became of a chain: the kills that struck, those that were not reached, and how it ended.

    `stopped` is what the run after the last kill said when it did not come to its end; then nothing was compared.
    """

    struck: tuple[Strike, ...]
    unreached: tuple[Strike, ...] = ()
    stopped: str | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What is said of one kill. The sums are those of its whole chain."""

    strike: Strike
    chain: int
    killed: bool
    lost: int | None
    doubled: int | None
    said: Said


@dataclass
class Queue:
    """The chains that are still to be played. A kill that was not reached goes to the head of a new one."""

    chains: list[list[Strike]]
    verdicts: list[Verdict] = field(default_factory=list)

    def judge(self, number: int, found: Chain, passes: Sequence[str], *, go_on: bool) -> None:
        """Add the verdicts of a chain that was played; `go_on`: what it could not judge is tried again."""
        again = list(found.unreached)
        if not found.struck:
            head = again.pop(0)
            first = _strike(passes, head.point, 1)
            if found.stopped is not None:
                self.verdicts.append(Verdict(head, number, False, None, None, "stopped"))
            elif first == head:
                self.verdicts.append(Verdict(head, number, False, None, None, "not reached"))
            else:
                again.insert(0, first)  # this run passed the point less often; the first pass must be there
        self.verdicts += judged(number, found)
        if found.stopped is not None:
            again = [*found.struck[:-1], *again]
        if found.stopped is not None and not go_on:
            left = [Verdict(strike, number, strike in found.struck, None, None, "not judged") for strike in again]
            self.verdicts += left
        elif again:
            self.chains.append(again)


def every(passes: Sequence[str], seed: int) -> list[Strike]:
    """Each point that an undisturbed run passes, once, at a pass drawn by the seed; in the order of the run."""
    chance = random.Random(seed)
    counts = Counter(passes)
    return _in_order(_strike(passes, point, chance.randint(1, counts[point])) for point in sorted(counts))


def named(passes: Sequence[str], wanted: Iterable[str]) -> list[Strike]:
    """The kills that a person names: `point` for its first pass, or `point:nth`.

    Raises Refused for one that isn't passed.
    """
    counts = Counter(passes)
    found = []
    for text in wanted:
        point, _, nth = text.strip().partition(":")
        if point not in counts:
            raise unknown("fail-point on the way of this pipeline", point, sorted(counts))
        if nth and not (nth.isdigit() and 1 <= int(nth) <= counts[point]):
            raise Refused(f"{text}: a run passes {point} {counts[point]} times", hint=f"{point}:1 is its first pass")
        found.append(_strike(passes, point, int(nth or 1)))
    return _in_order(set(found))


def sampled(strikes: list[Strike], count: int, seed: int) -> list[Strike]:
    """`count` of them by chance; the same seed draws the same."""
    return _in_order(random.Random(seed).sample(strikes, min(count, len(strikes))))


def dealt(strikes: list[Strike], length: int) -> list[list[Strike]]:
    """The kills as chains of at most `length`.

    They are dealt out one by one, so that each chain goes over all batches.
    """
    chains = -(-len(strikes) // length)
    return [strikes[n::chains] for n in range(chains)]


def nth_from(passes: Sequence[str], before: Strike | None, strike: Strike) -> int:
    """Which pass a run must be killed at that goes on after the kill `before`.

    About: it repeats a little of what was.
    """
    start = before.at + 1 if before else 0
    return max(1, list(passes[start : strike.at + 1]).count(strike.point))


def judged(number: int, found: Chain) -> list[Verdict]:
    """The verdicts on the kills of a chain that struck."""
    if found.stopped is not None:
        return [Verdict(strike, number, True, None, None, "stopped") for strike in found.struck[-1:]]
    lost, doubled = (sum(getattr(d, name) for d in found.differences) for name in ("lost", "doubled"))
    said: Said = "differs" if found.differences else "held"
    return [Verdict(strike, number, True, lost, doubled, said) for strike in found.struck]


def broken(pipeline: Pipeline, differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences that the declaration does not allow.

    At least once a kill may leave rows of a PostgreSQL append twice, and changes nothing else.
    """
    allowed = {o.name for o in pipeline.outputs if pipeline.mode == "at_least_once" and _appends(o)}
    return tuple(d for d in differences if d.lost or (d.doubled and d.result not in allowed))


def advice(
    verdicts: Iterable[Verdict], control: Sequence[Difference] | None, stopped: Sequence[str], again: str
) -> list[str]:
    """What to do when not all has held. `control`: how a second run without a kill differs, if one was made.

    `stopped`: what the runs that stopped have said. `again`: the command that plays the kills of one chain alone.
    """
    said = {verdict.said for verdict in verdicts}
    told = list(dict.fromkeys(stopped))
    if control:
        where = ", ".join(d.result for d in control)
        told.append(
            f"two runs without any kill differ too ({where}): a function gives other rows each time (rand(), now(), "
            f"{OO_SYSTEM_TIME}, a look-up that changes), so no kill can be judged by them. If another run must not "
            "change what was written, declare stable_input=True on the output; columns that may change: --leave-out "
            "OUTPUT.COLUMN"
        )
    elif "differs" in said:
        told.append(
            "a run without a kill gives the results of the reference, so it was a kill that shows. Each kill of that "
            f"chain alone: {again}"
        )
    if "stopped" in said:
        told.append(
            "after a kill the same command did not come to its end: nothing was written twice, but in earnest a person "
            "would have to look. If its words are of other rows in a replay, declare stable_input=True on the output"
        )
    if "not reached" in said:
        told.append("a point was not passed again in the disturbed runs: nothing is known of a kill there")
    return told


def _strike(passes: Sequence[str], point: str, nth: int) -> Strike:
    return Strike(point, nth, [at for at, name in enumerate(passes) if name == point][nth - 1])


def _in_order(strikes: Iterable[Strike]) -> list[Strike]:
    return sorted(strikes, key=lambda strike: strike.at)


def _appends(output: Output) -> bool:
    return isinstance(output.sink, Postgres) and output.sink.write == "append"
