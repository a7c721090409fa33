"""The figures of receive on the pages are those that the benchmark stored last."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/cost.md", "tests/benchmarks/README.md"])
def test_the_table_of_receive_has_the_stored_figures(page: str) -> None:
    stored = json.loads((ROOT / "tests/benchmarks/results/receive.json").read_text())
    assert "else ran" in stored["how"], "the record says whether anything else ran beside it"
    rates = stored["records_per_second"]
    ways = ("append", "at_least_once", "bare_quick", "drop_duplicates", "exactly_once", "merge")
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    for way in ways:
        row = next((row for row in rows if f"{rates[way]:,}" in row), None)
        assert row is not None, f"{page} has another rate for {way} than {rates[way]:,}"
        assert f"{rates[way] / rates['append']:.2f}" in row, row
