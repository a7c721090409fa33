"""A processor outside of Spark: the order of its records, and a key that is played by itself."""

from __future__ import annotations

import random
from collections import Counter

import pandas as pd
import pyspark.sql.streaming
import pytest

from onlyonce.core.errors import Refused
from onlyonce.core.windows import micros
from onlyonce.outputs.state import Alone, in_order, spark_tester
from tests.support.stateful_shop import COLUMNS, GAP, Silences

START = pd.Timestamp("2026-01-01")


def records(*seconds: int) -> pd.DataFrame:
    """One record at each of these seconds, as a processor's operator gets them."""
    times = [START + pd.Timedelta(seconds=second) for second in seconds]
    return pd.DataFrame({"id": range(len(times)), "oo_event_time": times, "oo_high": range(len(times)), "oo_low": 0})


def test_the_records_of_a_key_come_in_order_of_event_time_and_then_of_their_ids() -> None:
    """However they are cut into frames, and in whichever order; the ids themselves are not seen."""
    them = records(3, 1, 2, 1, 1)
    for seed in range(5):
        mixed = them.sample(frac=1, random_state=seed)
        cut = random.Random(seed).randrange(1, len(them))
        found = in_order(iter([mixed[:cut], mixed[cut:]]))
        assert list(found["id"]) == [1, 3, 4, 2, 0]
        assert list(found.columns) == ["id", "oo_event_time"]


def test_a_key_alone_has_its_records_and_then_its_timers_up_to_the_bound() -> None:
    """Each key begins with no state, though the processor is the same; one whose timers are set behind the bound has
    its records only."""
    alone = Alone(Silences(), list(COLUMNS), micros(GAP))
    for _ in range(2):
        found = alone.rows(("a",), records(30, 5, 0))
        assert Counter(found["what"]) == {"came": 3, "silent": 2}
        assert [(row.at, row.records) for row in found[found["what"] == "silent"].itertuples()] == [
            (START + pd.Timedelta(seconds=5), 2),
            (START + pd.Timedelta(seconds=30), 3),
        ]
    early = Alone(Silences(), list(COLUMNS), micros(GAP) - 1000)
    assert list(early.rows(("a",), records(0))["what"]) == ["came"]


def test_a_spark_without_the_tester_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.1 has none: a refusal, and no ImportError in a task."""
    monkeypatch.delattr(pyspark.sql.streaming, "TwsTester")
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    with pytest.raises(Refused, match=r"by Spark's TwsTester, and pyspark 4\.1\.3 has none"):
        spark_tester()
