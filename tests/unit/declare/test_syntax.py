"""A syntax error of a user's file is explained at the line to look at."""

from __future__ import annotations

import pytest

from onlyonce.api import syntax

TEXT = """SHOP = Pipeline(
    schema="id string, "
    "at timestamp",
    outputs=(
        Output(
            name="big",
        ),
        Output(
            window=Fixed(1) if True
            else None,
        ),
    ),
)
PIPELINES = [SHOP]
"""
CASES = {
    "an open bracket of a call": ('name="big",', 'name=f(1,', 6, "close the bracket of line 6: name=f(1,"),
    "an open bracket of lines": ("        ),\n        Output(", "        Output(", 5, "close the bracket of line 5: Output("),
    "a comma behind a string": ('"at timestamp",', '"at timestamp"', 3, 'put a comma at the end of line 3: "at timestamp"'),
    "a comma behind a bracket": ("        ),\n        Output(", "        )\n        Output(", 7, "put a comma at the end of line 7: )"),
    "a comma behind a choice": ("else None,", "else None\n            a=1", 10, "put a comma at the end of line 10: else None"),
    "a comma in a line": ('name="big",', 'name="big" a=1,', 6, "put a comma where it is missing in that line"),
    "a call that was not opened": ("Output(\n            name", "Output\n            name", 5, "open a bracket at the end of line 5: Output("),
    "a tuple that was not opened": ("outputs=(", "outputs=", 4, "open a bracket at the end of line 4: outputs=("),
    "a first call that was not opened": ("Pipeline(", "Pipeline", 1, "open a bracket at the end of line 1: SHOP = Pipeline("),
    "a bracket too many within a call": ('    "at timestamp",', '    "at timestamp"),', 3, 'take the last closing bracket out of line 3: "at timestamp"),'),
    "a bracket too many": ("    ),\n)", "    ),\n))", 13, "take that bracket out"),
    "an indent": ("PIPELINES", "  PIPELINES", 14, "as far left as the line before it"),
    "another indent": ("PIPELINES", "if True:\n    a = 1\n  PIPELINES", 16, "exactly below the lines of its block"),
    "no indent": ("PIPELINES", "def f():\nPIPELINES", 15, "indent the line below line 14"),
    "a colon": ("PIPELINES", "if True\n    PIPELINES", 14, "put a colon at the end of that line"),
    "a quote": ('name="big",', 'name="big,', 6, "put the closing quote of that string where it ends"),
    "another": ("PIPELINES", "a b", 14, "correct that line, or the end of the line before it"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_line_to_correct_is_named_and_how(case: tuple[str, str, int, str]) -> None:
    """Also where Python names another line: the outermost bracket, or the beginning of a call."""
    before, broken, line, hint = case
    text = TEXT.replace(before, broken, 1)
    with pytest.raises(SyntaxError) as error:
        compile(text, "pipelines.py", "exec")

    found = syntax.explained(error.value, text)

    assert (found.line, found.message) == (line, error.value.msg)
    assert hint in found.hint
