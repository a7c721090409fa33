"""Where the manifests of an instance are: the tables that list the input of its sources. Without a JVM."""

from __future__ import annotations

from onlyonce import settings
from onlyonce.model.storage.location import Location
from onlyonce.storage import stores

SOURCES = "sources"
"""The folder of the manifests of several sources."""


def of(instance: str) -> list[Location]:
    """Return each place of a manifest, whether there is one or not: of the source, or of each of several sources and of
    their turns."""
    home = settings.data_location(instance)
    folders = [home, *(home / SOURCES / one for one in stores.of(home).names(home / SOURCES))]
    return [folder / name for folder in folders for name in ("turns", "files", "ranges")]
