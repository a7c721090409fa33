"""The commands of the blocks that pages mark with `<!-- run -->`, on the pipeline that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from onlyonce import settings
from onlyonce.cli import app
from onlyonce.local.feed import feed_files
from tests.docs.pages import blocks
from tests.docs.test_blocks import commands_in
from tests.support.platform import Platform

pytestmark = pytest.mark.spark


def test_the_marked_commands_run_as_they_stand_there(new_platform: Callable[..., Platform], spark: object) -> None:
    """Page by page, on January's flights. Each ends as done: nothing is refused, and what is asked for is there."""
    new_platform("jobs/pipelines.py")
    feed_files("flights", settings.inbox("flights"), records=27_500, files=4)
    marked = [block for block in blocks("sh") if block.mark]
    assert marked[0].page.name == "README.md"  # whose first command takes the flights in

    for argv in dict.fromkeys(tuple(argv) for block in marked for argv in commands_in(block, "onlyonce")):
        done = CliRunner().invoke(app, argv)
        assert done.exit_code == 0, f"onlyonce {' '.join(argv)}\n{done.output}"

    names: dict[str, Any] = {}
    for block in (block for block in blocks("python") if block.page.name == "notebook.md"):
        exec(block.text, names)
    assert len(names["flights"].output("per_carrier")) > 0
