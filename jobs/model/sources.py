"""The sources that a pipeline can declare. Pure data, checked when made."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from jobs.model.declaration import check_one_of, declaration
from jobs.model.errors import Refused

FORMATS = ("json", "csv")


@declaration
class Files:
    """An inbox of files, a record a line. A file is complete when it appears: write it elsewhere, then rename.

    Names that end in .gz are gzip files. One that is cut short or damaged is `invalid` as a file: nothing of it is read.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names that begin with a dot are left alone
    max_files_a_batch   how many files one batch takes; with their sorted names it fixes the cut into batches
    format              'json': an object on each line. 'csv': the declared columns in order, separated by commas; a text
                        with a comma or quote in double quotes, a quote doubled; nothing between commas is null
    header              csv: the first line of each file has the names of the declared columns; a file with other names
                        there is `invalid` as a file
    """

    inbox: str | None = None
    max_files_a_batch: int = 1000
    # Not in the text by which a pipeline's fingerprint is made, so that one from before they existed keeps its own.
    format: Literal["json", "csv"] = field(default="json", repr=False)
    header: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of("Files", "format", self.format, FORMATS)
        if self.header and self.format != "csv":
            raise Refused(
                f"Files: header=True with format={self.format!r}", hint="JSON lines name their fields themselves"
            )
        if self.max_files_a_batch < 1:
            raise Refused("Files: max_files_a_batch must be at least 1", hint="1000 is the default")

    def check_columns(self, pipeline: str, columns: list[str]) -> None:
        """Refuse declared columns (in DDL) that this format can't hold."""
        nested = [column.strip() for column in columns if "<" in column]
        if nested and self.format == "csv":
            raise Refused(f"pipeline {pipeline}: CSV has no nested columns: {nested[0]}", hint="declare it as a string")

    def layout(self) -> str:
        """How a file is cut into records and columns, in text."""
        return f"{self.format} with a header" if self.header else self.format


Source = Files
