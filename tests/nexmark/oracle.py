"""The queries once more, in plain Python over all distinct events at once: loops and dicts, no windows of Spark, no
batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.nexmark.events import Event

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
Rows = Counter[tuple[Any, ...]]


def at(event: Event) -> datetime:
    """When it happened."""
    return datetime.fromisoformat(event["at"])


def of(events: Sequence[Event], kind: str) -> list[Event]:
    """The events of a kind."""
    return [event for event in events if event["kind"] == kind]


def windows(time: datetime, size: timedelta, slide: timedelta) -> Iterator[datetime]:
    """The starts of the windows that a time is in."""
    start = EPOCH + (time - EPOCH) // slide * slide
    while start + size > time:
        yield start
        start -= slide


def ten_seconds(time: datetime) -> int:
    """The number of its ten seconds since 1970."""
    return (time - EPOCH) // (10 * SECOND)


def q1(events: Sequence[Event]) -> Rows:
    """(id, auction, bidder, euros)."""
    return Counter((b["id"], b["auction"], b["bidder"], b["price"] * 908 / 1000) for b in of(events, "bid"))


def q2(events: Sequence[Event]) -> Rows:
    """(id, auction, price)."""
    return Counter((b["id"], b["auction"], b["price"]) for b in of(events, "bid") if b["auction"] % 123 == 0)


def q3(events: Sequence[Event]) -> Rows:
    """(name, city, state, auction)."""
    return Counter(
        (p["name"], p["city"], p["state"], a["auction"])
        for p in of(events, "person")
        for a in of(events, "auction")
        if a["seller"] == p["person"] and a["category"] == 10 and p["state"] in ("OR", "ID", "CA")
    )


def _wins(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Each auction with a bid while it was open, and the one that wins."""
    for auction in of(events, "auction"):
        opened, expires = at(auction), datetime.fromisoformat(auction["expires"])
        bids = [b for b in of(events, "bid") if b["auction"] == auction["auction"] and opened <= at(b) <= expires]
        if bids:
            yield auction, max(bids, key=lambda b: (b["price"], EPOCH - at(b), b["id"]))


def q9(events: Sequence[Event]) -> Rows:
    """(auction, category, seller, id, bidder, price)."""
    return Counter(
        (a["auction"], a["category"], a["seller"], b["id"], b["bidder"], b["price"]) for a, b in _wins(events)
    )


def q4(events: Sequence[Event]) -> Rows:
    """(category, total, auctions)."""
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, bid in _wins(events):
        prices[auction["category"]].append(bid["price"])
    return Counter((category, sum(each), len(each)) for category, each in prices.items())


def q6(events: Sequence[Event]) -> Rows:
    """(seller, auction, total, auctions): of the last ten that have closed, with each that closes."""
    prices: dict[int, list[int]] = defaultdict(list)
    found: Rows = Counter()
    for auction, bid in sorted(_wins(events), key=lambda both: (both[0]["expires"], both[0]["auction"])):
        prices[auction["seller"]].append(bid["price"])
        last = prices[auction["seller"]][-10:]
        found[auction["seller"], auction["auction"], sum(last), len(last)] += 1
    return found


def q5(events: Sequence[Event]) -> Rows:
    """(window_start, auction, bids)."""
    counts: dict[datetime, Counter[int]] = defaultdict(Counter)
    for bid in of(events, "bid"):
        for start in windows(at(bid), 10 * SECOND, 2 * SECOND):
            counts[start][bid["auction"]] += 1
    return Counter(
        (start, auction, bids)
        for start, each in counts.items()
        for auction, bids in each.items()
        if bids == max(each.values())
    )


def q7(events: Sequence[Event]) -> Rows:
    """(window_start, price, id, auction, bidder)."""
    by_window: dict[datetime, list[Event]] = defaultdict(list)
    for bid in of(events, "bid"):
        by_window[next(windows(at(bid), 10 * SECOND, 10 * SECOND))].append(bid)
    return Counter(
        (start, b["price"], b["id"], b["auction"], b["bidder"])
        for start, them in by_window.items()
        for b in them
        if b["price"] == max(one["price"] for one in them)
    )


def q8(events: Sequence[Event]) -> Rows:
    """(person, name, auction)."""
    return Counter(
        (p["person"], p["name"], a["auction"])
        for p in of(events, "person")
        for a in of(events, "auction")
        if a["seller"] == p["person"] and ten_seconds(at(a)) == ten_seconds(at(p))
    )


def q11(events: Sequence[Event]) -> Rows:
    """(bidder, window_start, window_end, bids)."""
    found: Rows = Counter()
    by_bidder: dict[int, list[datetime]] = defaultdict(list)
    for bid in of(events, "bid"):
        by_bidder[bid["bidder"]].append(at(bid))
    for bidder, times in by_bidder.items():
        session: list[datetime] = []
        for time in [*sorted(times), None]:
            if session and (time is None or time > session[-1] + 10 * SECOND):
                found[bidder, session[0], session[-1] + 10 * SECOND, len(session)] += 1
                session = []
            if time is not None:
                session.append(time)
    return found


def q12(events: Sequence[Event], came: Callable[[Event], datetime]) -> Rows:
    """(ten_seconds, bidder, bids), by when the platform has first seen an event."""
    counts = Counter((ten_seconds(came(b)), b["bidder"]) for b in of(events, "bid"))
    return Counter((*key, bids) for key, bids in counts.items())


def q13(events: Sequence[Event], side: dict[int, str]) -> Rows:
    """(id, auction, bidder, price, value)."""
    bids = [b for b in of(events, "bid") if b["auction"] % 10 in side]
    return Counter((b["id"], b["auction"], b["bidder"], b["price"], side[b["auction"] % 10]) for b in bids)


def q16(events: Sequence[Event]) -> Rows:
    """(channel, window_start, minute, bids, bidders, auctions, then the three of each rank)."""
    by_channel: dict[tuple[str, datetime], list[Event]] = defaultdict(list)
    for bid in of(events, "bid"):
        by_channel[bid["channel"], next(windows(at(bid), timedelta(days=1), timedelta(days=1)))].append(bid)

    def counts(them: list[Event]) -> tuple[int, int, int]:
        return len(them), len({b["bidder"] for b in them}), len({b["auction"] for b in them})

    found: Rows = Counter()
    for (channel, start), them in by_channel.items():
        ranks = [(0, 10_000), (10_000, 1_000_000), (1_000_000, 10**12)]
        of_ranks = [counts([b for b in them if low <= b["price"] < high]) for low, high in ranks]
        minute = max(f"{at(b):%H:%M}" for b in them)
        found[channel, start, minute, *counts(them), *(n for rank in of_ranks for n in rank)] += 1
    return found


def q18(events: Sequence[Event]) -> Rows:
    """(bidder, auction, id, price, channel)."""
    last: dict[tuple[int, int], Event] = {}
    for bid in sorted(of(events, "bid"), key=lambda b: (at(b), b["id"])):
        last[bid["bidder"], bid["auction"]] = bid
    return Counter((*key, b["id"], b["price"], b["channel"]) for key, b in last.items())


def q20(events: Sequence[Event]) -> Rows:
    """(id, auction, bidder, price, item, seller)."""
    auctions = {a["auction"]: a for a in of(events, "auction") if a["category"] == 10}
    return Counter(
        (
            b["id"],
            b["auction"],
            b["bidder"],
            b["price"],
            auctions[b["auction"]]["item"],
            auctions[b["auction"]]["seller"],
        )
        for b in of(events, "bid")
        if b["auction"] in auctions
    )
