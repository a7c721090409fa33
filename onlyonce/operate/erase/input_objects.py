"""Which objects of an inbox in a store hold lines that an erasure means. They are named, and stay: an object that is written anew has another ETag, by which the registry
would refuse it as replaced. A person deletes them, since what they hold has been taken in.

All objects are read, packed ones too. Who calls it: `forget`. Errors: Changed for one that is replaced meanwhile; those of the store. No object is written or deleted.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.storage.location import Url
from onlyonce.operate.erase import input_files, source_conditions
from onlyonce.sources.files import folders, listing, object_listing, packing
from onlyonce.storage.stores import Entry

NAMED = 100
"""So many objects are named at most: whoever deletes them asks again."""


def found(pipeline: Pipeline, condition: Condition) -> list[Url]:
    """The objects with such lines, and those that are damaged, by name."""
    each = source_conditions.of(pipeline, condition)
    # Of files with columns `input_files.left` tells.
    return sorted(one for source, asked, _ in each if asked and inputs.in_store(source) and input_files.plain(source) for one in _found(source, asked))


def _found(source: Pipeline, condition: Condition) -> list[Url]:
    inbox, columns, held = inputs.folder(source), input_files.csv_columns(source), list[Url]()
    assert isinstance(inbox, Url)
    with ThreadPoolExecutor(object_listing.AT_ONCE) as pool:
        for page in object_listing.pages(inbox, folders.of(source)):
            holds = pool.map(lambda one: _holds(one, condition, columns), page)
            held += [one.at for one, is_one in zip(page, holds, strict=True) if is_one and isinstance(one.at, Url)]
    return held


def left(objects: list[Url]) -> Iterator[str]:
    """What a person is told to delete."""
    for one in objects[:NAMED]:
        yield f"object {one}: it holds such records, or is damaged, and what it holds has been taken in: delete it"
    if len(objects) > NAMED:
        yield f"{len(objects) - NAMED:,} more such objects: delete these, then run the same command again"


def _holds(entry: Entry, condition: Condition, columns: list[str] | None) -> bool:
    name = str(entry.at)
    try:
        with listing.opened(listing.FileAt(name, entry.bytes, entry.etag), packing.of(name)) as content:
            lines: Any = content
            return bool(input_files.places(io.BufferedReader(lines, listing.PIECE), condition, columns))
    except FileNotFoundError:
        return False
    except Exception as error:
        if packing.of(name) and packing.is_damage(error):
            return True
        raise
