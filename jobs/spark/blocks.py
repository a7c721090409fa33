"""A function over columns in Arrow blocks, as a Spark expression.

Who calls it: `receive` (the judge) and `plain_lines` (the reader). Not promised: where a block is cut.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

Blocks = Callable[[Iterator[Any]], Iterator[pa.Array]]


def over_blocks(function: Blocks, gives: DataType | str) -> Any:
    """`function` is called once for each partition, with its blocks in turn; it gives as many rows for each as it was given."""
    with warnings.catch_warnings():
        # Spark would rather infer the kind from type hints, which say less than the kind itself.
        warnings.simplefilter("ignore", UserWarning)
        return F.arrow_udf(function, gives, F.ArrowUDFType.SCALAR_ITER)
