"""Cases that users of such systems have reported: each folder has its inputs and the right result as data (README.md).

The product's own functions list the files and read each record, as a task does. No JVM is needed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onlyonce.api import ddl
from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.core import conversions, line_template, line_values
from onlyonce.core.errors import Refused
from onlyonce.core.line_values import Column, Row
from onlyonce.sources import discovery, file_bytes, folders, typed_files
from onlyonce.sources.listing import InputFile, new_files
from onlyonce.sources.values import fast_json
from tests.support.shop import SHOP

HERE = Path(__file__).parent
ID = re.compile("[a-z]+[0-9]+")
"""How the id of an invalid record is found in its line."""


def cases() -> Iterator[Any]:
    """Yield the cases; one that fails today is marked so."""
    for path in sorted(HERE.glob("*/*/case.json")):
        case = json.loads(path.read_text("utf-8"))
        if "reads" in case:  # test_sources
            continue
        marks = [pytest.mark.xfail(strict=True, reason=case["missing"])] if "missing" in case else []
        yield pytest.param(path.parent, case, id=str(path.parent.relative_to(HERE)), marks=marks)


@pytest.mark.parametrize(("folder", "case"), list(cases()))
def test_case_gives_the_right_result(folder: Path, case: dict[str, Any]) -> None:
    """Its records, its invalid ones, the folders that are skipped, or why the run is refused."""
    pipeline = replace(SHOP, source=Files(**case["source"]), schema=case["schema"], aliases=case.get("aliases", {}))
    below = folders.of(pipeline)
    listed = new_files(folder / "input", {}, discovery.layout(pipeline), folders=below)
    if "refused" in case:
        with pytest.raises(Refused) as refused:
            list(listed)
        assert case["refused"] in refused.value.hint
        return
    kept: list[dict[str, Any]] = []
    invalid: list[str] = []
    for file in listed:
        assert file.refusal is None
        for record, line in rows(pipeline, file):
            if record is None:
                invalid += ID.findall(line)[:1] or [line]
            else:
                del record[pipeline.event_time]
                kept.append(record)

    assert sorted(kept, key=lambda record: str(record["id"])) == sorted(
        case["kept"], key=lambda record: str(record["id"])
    )
    assert sorted(invalid) == sorted(case["invalid"])
    assert sorted(str(Path(one).relative_to(folder / "input")) for one in below.skipped) == case.get("skipped", [])


def rows(pipeline: Pipeline, file: InputFile) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yield each record of a file, or none if it is invalid, and its line."""
    if pipeline.source.format in ("parquet", "avro"):
        for part in typed_files._parts(file, pipeline):
            for batch in typed_files._reader(pipeline)(part):
                for row in batch.to_pylist():
                    yield (
                        None if row["oo_refused"] else {name: plain(row[name]) for name in pipeline.columns()},
                        str(row["oo_line"]),
                    )
        return
    read = reader(pipeline)
    content, begin = Path(file.path).read_bytes(), 0
    for end in np.concatenate([*file_bytes.record_ends_of(io.BytesIO(content), file.quoted_within)]).tolist():
        line = content[begin:end].removesuffix(b"\n").decode()
        values, begin = read(line).values, end
        record = (
            None
            if values is None
            else {name: plain(value) for name, value in zip(pipeline.columns(), values, strict=True)}
        )
        assert fast(pipeline, line) in (None, record)
        yield record, line


def reader(pipeline: Pipeline) -> Callable[[str], Row]:
    """Return the table's reader of lines."""
    named, in_csv = pipeline.named(), pipeline.source.format == "csv"
    of = conversions.of_cell if in_csv else conversions.of_type
    columns = [Column(name, named[name], kind, of(kind)) for name, kind in ddl.types(pipeline.schema).items()]
    return line_values.csv_reader(columns) if in_csv else line_values.json_reader(columns, list(named.values()))


def fast(pipeline: Pipeline, line: str) -> dict[str, Any] | None:
    """Return the record that the fast path has of a line; None if it leaves the line to the table's reader."""
    kinds, named = ddl.types(pipeline.schema), pipeline.named()
    if pipeline.source.format != "json" or not {*kinds.values()} <= {*line_template.EXACT}:
        return None
    found, columns = fast_json.read_plain(pa.array([line]), {named[name]: kind for name, kind in kinds.items()})
    return (
        {name: plain(column[0].as_py()) for name, column in zip(kinds, columns, strict=True)}
        if found[0].as_py()
        else None
    )


def plain(value: Any) -> Any:
    """Return a value as a case has it: times in UTC, and decimals, as strings; a map as an object."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return dict(value)
    return str(value) if isinstance(value, date | Decimal) else value
