"""There is one encoder for each format, which all sinks use: values by `engine.encoding`, CSV by `content`, messages
of Kafka by `conversions`.

Pure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import onlyonce

SOURCES = Path(onlyonce.__file__).parent
ENCODES = {
    r"F\.to_json\(|F\.to_csv\(|\.toJSON\(": (),
    r"csv\.(CSVWriter|write_csv|WriteOptions|writer|DictWriter)\b": ("content.py",),
    r"F\.(base64|hex)\(": (),
    r"default=(str|repr)|parse_float=(float|str)|strftime\(": (),
}
"""What encodes values, and the files of the sinks that have it."""
FOLDERS = ("sinks", "outputs")


@pytest.mark.parametrize("code", ENCODES)
def test_no_sink_has_an_encoder_of_its_own(code: str) -> None:
    """Spark's `to_json` without the options of the encoder cuts times and drops null fields; a second CSV writer would
    quote in another way; a float makes one key of two; strftime has no zeros before a year below 1000."""
    files = {path for folder in FOLDERS for path in (SOURCES / folder).rglob("*.py")}
    own = [
        path.name
        for path in files
        if any(re.search(code, line.split("  #")[0]) for line in path.read_text().splitlines())
    ]
    assert sorted(own) == sorted(ENCODES[code])
