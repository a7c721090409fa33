"""Made-up user events, as records in the order in which they arrive. Pure: the seed gives everything."""

from __future__ import annotations

import numpy as np
import pandas as pd

from onlyonce.local.feed.flights import iso_text

RECORD_ID = ("event_id",)
START = pd.Timestamp("2024-01-01T00:00:00Z")
HOURS = 3
RECORDS = 20_000
USERS = 500
ACTIONS = ("view", "search", "click", "buy")
ACTION_SHARES = (0.6, 0.2, 0.15, 0.05)


def arrivals(records: int | None, seed: int) -> pd.DataFrame:
    """Events of three hours from START (20,000 by default): event_id, user, at, action, as they arrive.

    Users are skewed as real ones are: the one of rank r is active as 1 / r ** 1.1, so the first of 500
    makes a fifth of all. More records make the same three hours denser. The same seed gives the
    same events; another release of numpy may give others. Called by deliver.feed.
    """
    count = RECORDS if records is None else records
    # The leading 1 keeps this stream of random numbers apart from that of the re-deliveries.
    random = np.random.default_rng([1, seed])
    at = START + pd.to_timedelta(np.sort(random.integers(HOURS * 3_600_000, size=count)), unit="ms")
    events = pd.DataFrame(
        {
            "event_id": _numbered("e", np.arange(count), 8),
            "user": _numbered("u", random.choice(USERS, size=count, p=_user_shares()), 4),
            "at": iso_text(pd.Series(at), "ms"),
            "action": random.choice(np.array(ACTIONS, dtype=object), size=count, p=ACTION_SHARES),
        }
    )
    arrived = at + pd.to_timedelta(_delays(count, random), unit="s")
    return events.iloc[np.argsort(arrived.to_numpy(), kind="stable")].reset_index(drop=True)


def _user_shares() -> np.ndarray:
    weights = np.arange(1, USERS + 1) ** -1.1
    shares: np.ndarray = weights / weights.sum()
    return shares


def _delays(count: int, random: np.random.Generator) -> np.ndarray:
    """Seconds on the way: mostly a few; one event in fifty waits for minutes, some of them for an hour."""
    usual = random.exponential(3, size=count)
    held_up = np.minimum(60 * (1 + random.pareto(1, size=count)), 3600)
    return usual + np.where(random.random(count) < 0.02, held_up, 0)


def _numbered(letter: str, numbers: np.ndarray, width: int) -> np.ndarray:
    return np.char.add(letter, np.char.zfill(numbers.astype(str), width)).astype(object)
