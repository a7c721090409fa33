"""Properties of a declared source of any kind. Ask here instead of comparing classes."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

Start = Literal["earliest", "latest"] | datetime
EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"


class DeclaredSource:
    """The properties of every source. A kind overrides those that differ.

    found_by   how new input is found (`onlyonce.sources.discovery.FINDERS`); empty for a topic, which Spark asks
    is_topic   its records are messages, identified by partition and offset
    is_table   its records are rows of a table's versions
    is_own     the user's class reads it, and may read any variable that an option names
    is_pulled  `onlyonce pull` writes its inbox
    has_inbox  its input is files of a folder, or objects of a store
    in_ranges  an entry of its manifest is a range of a file or part
    one_of     a declaration needs one of these options; the usual one comes first
    """

    found_by: ClassVar[str] = ""
    is_topic: ClassVar[bool] = False
    is_table: ClassVar[bool] = False
    is_own: ClassVar[bool] = False
    is_pulled: ClassVar[bool] = False
    has_inbox: ClassVar[bool] = False
    in_ranges: ClassVar[bool] = False
    one_of: ClassVar[tuple[str, ...]] = ()

    @property
    def inbox(self) -> str | None:
        """Return the declared inbox; None if the source has none or uses the default inbox."""
        return None

    @property
    def start(self) -> Start | int:
        """Return where the first run begins: a number is the version of a table."""
        return EARLIEST

    @property
    def links(self) -> bool:
        """Return whether a symbolic link in the inbox is followed."""
        return False

    @property
    def header(self) -> bool:
        """Return whether the first line of a file names its columns."""
        return False

    @property
    def makes_inbox(self) -> bool:
        """Return whether a run makes a missing inbox: the default one, or one that `onlyonce pull` writes."""
        return self.has_inbox and (self.inbox is None or self.is_pulled)

    @property
    def start_to_resolve(self) -> bool:
        """Return whether the first run must find out where the declared start is, and store it in the manifest."""
        return self.start != EARLIEST
