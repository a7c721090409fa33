"""Write rows as CSV: one way for files and for PostgreSQL's COPY. The values are encoded by `session.encoding`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import csv


def writer(file: Any, schema: pa.Schema, *, header: bool) -> csv.CSVWriter:
    """Return a writer of record batches. Each valid value is in quotes, so that null and an empty string differ."""
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=header, quoting_style="all_valid"))
