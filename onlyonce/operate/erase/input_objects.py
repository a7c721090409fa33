"""Find the objects of an inbox in a store that have lines which an erasure means, since nothing is erased before they
are taken in.

They stay: an object that is written again has another ETag, by which the manifest would refuse it as replaced. The
search at the end names them, and a person deletes them.

All objects are read, packed ones too. Who calls it: `forget`. Errors: Changed for one that is replaced meanwhile; those
of the store. No object is written or deleted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.storage.location import Url
from onlyonce.operate.erase import input_files, source_conditions
from onlyonce.sources import discovery
from onlyonce.sources.files import folders, listing, object_listing, packing
from onlyonce.storage.stores import Entry


def found(pipeline: Pipeline, condition: Condition) -> list[Url]:
    """The objects with such lines, and those that are damaged, by name."""
    each = source_conditions.of(pipeline, condition)
    return sorted(
        one
        for source, asked, _ in each
        if asked and inputs.in_store(source) and input_files.plain(source)
        for one in _found(source, asked)
    )


def _found(source: Pipeline, condition: Condition) -> list[Url]:
    inbox, held = inputs.folder(source), list[Url]()
    assert isinstance(inbox, Url)
    with ThreadPoolExecutor(object_listing.AT_ONCE) as pool:
        for page in object_listing.pages(inbox, folders.of(source)):
            holds = pool.map(lambda one: _holds(one, condition, source), page)
            held += [one.at for one, is_one in zip(page, holds, strict=True) if is_one and isinstance(one.at, Url)]
    return held


def _holds(entry: Entry, condition: Condition, source: Pipeline) -> bool:
    name = str(entry.at)
    try:
        with listing.opened(listing.FileAt(name, entry.bytes, entry.etag), packing.of(name)) as content:
            lines: Any = content
            return bool(
                input_files.places(lines, condition, input_files.csv_columns(source), discovery.quoted_within(source))
            )
    except FileNotFoundError:
        return False
    except Exception as error:
        if packing.of(name) and packing.is_damage(error):
            return True
        raise
