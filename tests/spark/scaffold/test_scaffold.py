"""The test that a new project has passes, whatever identifies its records."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from onlyonce.scaffold import project
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

HOURS = range(8, 16)
SAMPLES = {
    "none": None,
    "an id": ("a.csv", "order_id,at\n" + "".join(f"o{hour},2026-03-01T{hour:02}:00:00Z\n" for hour in HOURS)),
    "a number and a time": (
        "a.csv",
        "n,seen_at,at\n" + "".join(f"{hour % 2},2026-03-01T{hour // 2:02}:00:00Z,2026-03-01T{hour:02}:00:00Z\n" for hour in HOURS),
    ),
    "out of order": ("a.csv", "order_id,at\n" + "".join(f"o{hour},2026-03-01T{hour:02}:00:00Z\n" for hour in (9, 13, 8, 17))),
    "days": ("a.csv", "order_id,day\n" + "".join(f"o{day},2026-03-0{day}\n" for day in range(1, 9))),
    "its place": ("a.jsonl", "".join(f'{{"at": "2026-03-{day:02}T10:00:00Z", "ok": true}}\n' for day in (1, 1, 5))),
}  # fmt: skip


def test_a_decimal_comma_is_read_as_the_remark_says(spark: Any) -> None:
    """Thousands are separated by points, blanks or blanks that do not break. A word stops no run."""
    expression = project.COMMA.partition("F.")[2].format(column="fare")
    texts = ["1.234,50", "12,5", "-7", "1 234 567,00", "1\u00a0234,50", "1\u202f234,50", "NULL"]
    frame = spark.createDataFrame([(text,) for text in texts], "fare string")

    found = frame.select(eval(f"F.{expression}", {"F": F})).collect()

    assert [str(row[0]) for row in found] == ["1234.50", "12.50", "-7.00", "1234567.00", "1234.50", "1234.50", "None"]


@pytest.mark.parametrize("known_by", SAMPLES)
def test_the_test_of_a_new_project_passes(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_by: str
) -> None:
    """Of a project from a sample, and of one from none."""
    name = f"made_{[*SAMPLES].index(known_by)}"
    sample = SAMPLES[known_by]
    if sample is not None:
        (tmp_path / sample[0]).write_text(sample[1])
    project.make(name, tmp_path, tmp_path / sample[0] if sample else None)
    monkeypatch.syspath_prepend(tmp_path / name)

    spec = importlib.util.spec_from_file_location(f"test_{name}", tmp_path / name / "tests" / "test_transforms.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    declared = getattr(sys.modules[f"{name}.pipelines"], name.upper())

    assert (
        len(declared.record_id)
        == {"none": 1, "an id": 1, "a number and a time": 2, "out of order": 1, "days": 1, "its place": 0}[known_by]
    )
    for test in (made.test_each_record_counts_in_its_window, made.test_a_record_that_comes_after_its_window_is_late):
        test()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_names_in_mixed_case_are_read(
    spark: object, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A run takes the sample in by names in lower snake case, also if two names differ in their case alone."""
    names = ("PULocationID", "soldAt", "id", "ID")
    rows = [(n, f"2026-03-01T1{n}:00:00Z", 20 + n, 7) for n in range(3)]
    lines = [",".join(map(str, row)) for row in [names, *rows]]
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (tmp_path / f"a.{kind}").write_text("".join(f"{line}\n" for line in lines))
    project.make(f"of_{kind}", tmp_path, tmp_path / f"a.{kind}")
    monkeypatch.syspath_prepend(tmp_path / f"of_{kind}")
    platform.give(monkeypatch, ONLYONCE_PIPELINES=str(tmp_path / f"of_{kind}" / f"of_{kind}" / "pipelines.py"))
    platform.run(f"of_{kind}")

    events = platform.events(f"of_{kind}")[["pu_location_id", "id", "id_2"]].dropna()  # markers have no id
    assert sorted(events.itertuples(index=False, name=None)) == [(n, 20 + n, 7) for n in range(3)]
