"""The pipeline `shop` over files of CSV, as `csv_shop`, with semicolons between the values."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Files
from tests.support.csv_shop import IN_CSV

PIPELINES = [replace(IN_CSV, source=Files(format="csv", header=True, delimiter=";"))]
