"""Nobody asks Delta for an old version of a table of ours: it refuses one of more than a week, and compaction lets it
go."""

from __future__ import annotations

from pathlib import Path

import onlyonce


def test_no_reader_names_a_version_or_a_time() -> None:
    """A batch read of `events` is of the table as it is (`receive/past_rows`).

    Only of a lookup, a table of others, an old version is read.
    """
    home = Path(onlyonce.__file__).parent
    asking = [
        file.name
        for file in home.rglob("*.py")
        if any(word in file.read_text() for word in ("versionAsOf", "timestampAsOf"))
    ]
    assert asking == ["delta_versions.py"]
