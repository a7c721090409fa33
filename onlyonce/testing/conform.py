"""Entry point: tests whether a pipeline's source keeps its contract.

`onlyonce conform` runs it; see docs/how-to/own-source.md.

All that the source has now is read three times, and nothing is written but a scratch folder, which is removed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from onlyonce.asked import parse
from onlyonce.declare import loading as declarations
from onlyonce.model.report import Report


def main(argv: list[str]) -> Report:
    """Check one pipeline's source; the report's warnings are what is wrong. Raises the platform's errors."""
    asked = parse("conform", argv)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)

    from onlyonce.session import session
    from onlyonce.testing import conformance

    spark = session.start(f"onlyonce conform {pipeline.name}", asked.master)
    with tempfile.TemporaryDirectory(prefix="onlyonce-conform-") as scratch:
        found = conformance.check(spark, pipeline, Path(scratch))
    facts = {"records": found.records, "batches": found.batches, "keeps its contract": not found.problems}
    return Report(f"{pipeline.name}: its source, read at once, in batches and again", "", facts, {}, found.problems)
