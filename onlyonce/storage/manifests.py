"""Where the manifests of an instance are: the tables that list the input of its sources. Without a JVM."""

from __future__ import annotations

from onlyonce import settings
from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.storage import stores

NAMES = (stored_names.TURNS_MANIFEST, stored_names.FILES_MANIFEST, stored_names.RANGES_MANIFEST)


def of(instance: str) -> list[Location]:
    """Return each place of a manifest, whether there is one or not: of the source, or of each of several sources and of
    their turns."""
    home = settings.data_location(instance)
    sources = home / stored_names.SOURCES_FOLDER
    folders = [home, *(sources / one for one in stores.of(home).names(sources))]
    return [folder / name for folder in folders for name in NAMES]
