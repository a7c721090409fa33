"""A driver whose JVM finds no memory ends with three lines that name the setting, and no traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.spark.run.test_long_run import sales
from tests.support.platform import Platform

pytestmark = pytest.mark.spark


def test_a_driver_without_memory_says_which_setting_gives_it_more(new_platform: Callable[..., Platform]) -> None:
    """The JVM is gone: all that Python meets is a connection that is refused."""
    platform = new_platform("tests/support/hungry.py")
    platform.put("shop", "a.jsonl", sales(0))

    code, told = platform.run_whole("shop", ONLYONCE_DRIVER_MEMORY="1g")

    assert code == 75
    what, data, hint = told.strip().splitlines()[-3:]
    assert "memory was too small" in what
    assert data == "  data: nothing is half done"
    assert "ONLYONCE_DRIVER_MEMORY" in hint
    assert "Traceback" not in told
    assert "\tat " not in told
