"""The pytest plugin costs those nothing who don't use it, and `onlyonce.open` is there without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = (
    "import sys; heavy = [m for m in ('pyspark', 'deltalake', 'pandas', 'sqlalchemy', 'hypothesis', "
    "'airflow') if m in sys.modules]; print(heavy)"
)


@pytest.mark.parametrize(
    "imports",
    ["import onlyonce.testing.plugin", "import onlyonce; onlyonce.open", "from onlyonce.testing import then, rows_at"],
)
def test_nothing_heavy_is_imported_before_it_is_used(imports: str) -> None:
    """Each in a process of its own."""
    done = subprocess.run([sys.executable, "-c", f"{imports}\n{LOADED}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
