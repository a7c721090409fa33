"""The line of a statement or function that has the word of an error."""

from __future__ import annotations

from pathlib import Path

from onlyonce.core import errors, failures

TEXT = """def per_shop(sales):
    kept = sales.where("costs > 1")
    return (
        kept.groupBy("oo_window", "cost")
        .agg(F.sum("costs"))
        .where(F.monotonically_increasing_id() > 1)
    )
"""


def test_the_call_that_reads_rows_is_named(tmp_path: Path) -> None:
    """If the line has one."""
    file = tmp_path / "reads.py"
    file.write_text("records.show()\nread(records)\n")

    assert failures._action(f"{file}:1") == "calls show(), which reads its rows"
    assert failures._action(f"{file}:2") == "asks for its rows"


def test_the_line_that_renames_a_column_is_found(tmp_path: Path) -> None:
    """The last one above."""
    file = tmp_path / "renames.py"
    file.write_text('a = b.withColumnRenamed("cents", "amount")\na = a.withColumn("euro", F.col("cents"))\n')

    assert errors.renamed_above(f"{file}:2", "cents") == (1, "amount")
    assert errors.renamed_above(f"{file}:2", "euro") is None


def test_the_line_of_a_statement_that_has_the_word_is_named(tmp_path: Path) -> None:
    """Python names the last or the first line of a chain, and the function's first line if Spark names none."""
    file = tmp_path / "transforms.py"
    file.write_text(TEXT)

    assert errors.line_of_statement(f"{file}:6", "cost") == f"{file}:4"
    assert errors.line_of_statement(f"{file}:3", "cost") == f"{file}:4"
    assert errors.line_of_statement(f"{file}:2", "cost") == f"{file}:2"
    assert errors.line_of_statement(f"{file}:6", "nowhere") == f"{file}:6"
    assert errors.line_below(f"{file}:1", "monotonically_increasing_id") == f"{file}:6"
    assert errors.line_below(f"{tmp_path}/gone.py:9", "any") == f"{tmp_path}/gone.py:9"
