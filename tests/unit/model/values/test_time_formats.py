"""Times by a form that the declaration names: what it reads, and what can be no form."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from onlyonce.core import conversions
from onlyonce.core.conversions import Cell, Number, Unfit

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READ: list[tuple[str, str, Any, Any]] = [
    ("timestamp", "epoch_s", Number("1772366400"), NOON), ("timestamp", "epoch_s", "1772366400", NOON), ("timestamp", "epoch_ms", Cell("1772366400000"), NOON),
    ("timestamp", "epoch_us", Number("1772366400000000.9"), NOON), ("timestamp", "epoch_ns", Number("1772366400000000999"), NOON),
    ("timestamp", "epoch_ms", Number("-0.0001"), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)), ("timestamp", "epoch_ms", Number("1.7723664e12"), NOON),
    ("timestamp", "epoch_ms", Number("253402300799999.9999"), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)), ("timestamp", "epoch_ms", Number("253402300800000"), Unfit),
    ("timestamp", "epoch_ms", Number("-62135596800001"), Unfit), ("timestamp", "epoch_ms", Number("1e99999999999999999999"), Unfit), ("timestamp", "epoch_ms", "0x10", Unfit),
    ("timestamp", "epoch_ms", "2026-03-01T12:00Z", NOON), ("timestamp", "epoch_ms", True, Unfit), ("timestamp", "epoch_ms", "", Unfit), ("timestamp", "epoch_ms", "١", Unfit),
    ("timestamp", "%d/%m/%Y %H:%M", "1/3/2026 12:00", NOON), ("timestamp", "%d/%m/%Y %H:%M", "2026-03-01T13:00+01:00", NOON), ("timestamp", "%d/%m/%Y", "12:00", Unfit),
    ("timestamp", "%m/%d/%Y %I:%M %p", "3/1/2026 12:00 pm", NOON), ("timestamp", "%m/%d/%Y %I:%M %p", "3/1/2026 13:00 PM", Unfit), ("timestamp", "%m/%d/%Y", "13/1/2026", Unfit),
    ("timestamp", "%a, %d %B %Y %H:%M:%S %z", "Sun, 01 MARCH 2026 14:30:00 +0230", NOON), ("timestamp", "%d/%b/%Y:%H:%M:%S %z", "01/Mar/2026:12:00:00 Z", NOON),
    ("timestamp", "%Y%m%d%H%M", Number("202603011200"), NOON), ("timestamp", "%Y%m%d%H%M", Number("1772366400"), Unfit), ("timestamp", "%d/%m/%Y %z", "1/3/2026 +19:00", Unfit),
    ("timestamp", "%d.%m.%Y %H:%M:%S.%f", "01.03.2026 12:00:00.0000009", NOON), ("timestamp", "%d/%m/%Y %z", "1/1/0001 +01:00", Unfit), ("timestamp", "%d/%m/%Y", "1/3/2026 ", Unfit),
    ("date", "%d/%m/%y", "1/3/26", date(2026, 3, 1)), ("date", "%d/%m/%y", "1/3/69", date(1969, 3, 1)), ("date", "%d%m%Y", "1032026", Unfit), ("date", "%d%m%Y", "01032026", date(2026, 3, 1)),
    ("date", "%d/%m/%Y", "30/2/2026", Unfit), ("date", "%d/%m/%Y", "١/٣/٢٠٢٦", Unfit), ("timestamp_ntz", "%d %b %Y %H:%M", "1 mar 2026 12:00", NOON.replace(tzinfo=None)),
    ("date", "%d%%%m%%%Y", "1%3%2026", date(2026, 3, 1)), ("date", "[%d].%m.%Y", "[1].3.2026", date(2026, 3, 1)), ("date", "%d.%m.%Y", "1x3.2026", Unfit),
]  # fmt: skip
WRONG = {
    "": "exactly one of %Y", "%d/%m": "exactly one of %Y", "%Y/%m": "exactly one of %d", "%Y-%d-%m": "ISO 8601 says another", "%Y-%d-%mT%H:%M:%SZ": "ISO 8601 says another",
    "%d/%m/%Y %Q": "%Q is none of", "%d/%m/%Y %": "at its end", "%d/%d/%m/%Y": "twice", "%d/%m/%b/%Y": "exactly one of %m", "%d/%m/%Y %I": "%I with %p", "%d/%m/%Y %H %I %p": "%I with %p",
    "%d/%m/%Y %p": "%I with %p", "epoch": "exactly one of", "%s": "%s is none of",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "form", "value", "wanted"), READ)
def test_a_value_is_read_by_the_form_of_its_column(kind: str, form: str, value: Any, wanted: Any) -> None:
    """Or by the type itself, or not at all."""
    convert = conversions.of_type(conversions.with_forms("at", kind, {"at": form}))
    try:
        found = convert(value, [])
    except Unfit:
        found = Unfit
    assert (type(found), found) == (type(wanted), wanted)


@pytest.mark.parametrize(("form", "why"), WRONG.items())
def test_what_gives_no_time_is_no_form(form: str, why: str) -> None:
    """And a pattern that takes an ISO 8601 time for another one, which is read in any case."""
    with pytest.raises(conversions.Wrong, match=why):
        conversions.time_reader(form)


@pytest.mark.parametrize(
    "form",
    [
        "%Y/%m/%d %H:%M:%S.%f %z",
        "%d.%m.%Y %I:%M:%S %p",
        "%a %d %b %Y",
        "%A, %B %d, %Y %H:%M",
        "%Y%m%d%H%M%S",
        "%m/%d/%y",
    ],
)
def test_a_written_time_is_read_again(form: str) -> None:
    """As Python's own `strftime` writes it, whose names are English in the tests' locale."""
    chance, read = random.Random(form), conversions.time_reader(form)
    for _ in range(300):
        zone = timezone(timedelta(minutes=chance.randrange(-18 * 60, 18 * 60 + 1)))
        written = datetime(chance.randrange(1970, 2068), 1, 1, tzinfo=zone) + timedelta(
            microseconds=chance.randrange(365 * 86_400_000_000)
        )
        found = read(text := written.strftime(form))
        assert found
        assert found.clock == datetime.strptime(text, form).replace(tzinfo=None)
        assert found.zone == (zone.utcoffset(None) if "%z" in form else None)
