"""The sources that a pipeline can declare. Pure data, checked when made."""

from __future__ import annotations

from jobs.model.declaration import declaration
from jobs.model.errors import Refused


@declaration
class Files:
    """An inbox of JSON-lines files. A file is complete when it appears: write it elsewhere, then rename.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names that begin with a dot are left alone
    max_files_a_batch   how many files one batch takes; with their sorted names it fixes the cut into batches
    """

    inbox: str | None = None
    max_files_a_batch: int = 1000

    def __post_init__(self) -> None:
        if self.max_files_a_batch < 1:
            raise Refused("Files: max_files_a_batch must be at least 1", hint="1000 is the default")


Source = Files
