"""All sinks encode values by `onlyonce.session.encoding`. Pure."""

from __future__ import annotations

from pathlib import Path

import onlyonce


def test_no_sink_has_an_encoder_of_its_own() -> None:
    """Spark's `to_json` without the options of the encoder cuts times and drops null fields."""
    sources = Path(onlyonce.__file__).parent
    own = [path for folder in ("sinks", "outputs") for path in (sources / folder).rglob("*.py") if "F.to_json(" in path.read_text()]
    assert sorted(path.name for path in own) == ["delta_files.py", "mysql_columns.py"]  # arrays of strings that are encoded already
