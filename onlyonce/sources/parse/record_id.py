"""Computes a record's id without a JVM, as receive does (`parse`, `plain_records`): two chained XXH64 hashes of the id
columns as text, or of the record's place.

Each value is written as `onlyonce/model/values/id_strings.py` says. Raise Refused for values that are no id of the
pipeline.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from onlyonce.declare import ddl
from onlyonce.declare.pipeline import DeltaSource, Growing, Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.errors import Refused
from onlyonce.model.values import conversions, id_strings
from onlyonce.model.values.conversions import Cell, Convert, Unfit
from onlyonce.sources.files import file_identity, moved_inboxes, regular_file

SEED = 42
"""Spark's own, for the first column; the hash of a column is the seed of the next one."""
HEX = re.compile(r"[0-9a-fA-F]{32}")
LOW = b"low"


@dataclass(frozen=True)
class RecordId:
    """The two halves as `events` has them: signed 64-bit numbers."""

    high: int
    low: int

    def __str__(self) -> str:
        return f"{self.high % 2**64:016x}{self.low % 2**64:016x}"


@dataclass(frozen=True)
class Asked:
    """What a person asked for: the ids that it may mean, and the values by column, where they were given."""

    ids: list[RecordId]
    values: dict[str, str]


def asked(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    """The values of the id columns in order, one JSON object or list of them, or the 128 bits in hexadecimal.

    By position: the file (its path, or its name in the inbox) and the byte at which the record begins; of a topic the
    partition and the offset; of a table version/file and the row.

    32 hexadecimal digits may be a text of the user's as well: then both are meant. Raises Refused.
    """
    if pipeline.sources:
        return _of_each_source(pipeline, given)
    if pipeline.by_position and not (len(given) == 1 and HEX.fullmatch(given[0])):
        return _places(pipeline, given)
    if len(given) != 1 or not HEX.fullmatch(given[0]):
        values = _by_column(pipeline, given)
        return Asked([of_values(pipeline, values)], values)
    by_bits = from_hex(given[0])
    if pipeline.by_position:
        return Asked([by_bits], {})
    try:
        values = _by_column(pipeline, given)
        return Asked([by_bits, of_values(pipeline, values)], values)
    except Refused:
        return Asked([by_bits], {})


def _of_each_source(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    """Of several sources: the id that the record would have, whichever it is of.

    Values are those of the pipeline's columns.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources]
    if pipeline.by_position or (len(given) == 1 and HEX.fullmatch(given[0])):
        found = [asked(view, given) for view in views]
        return Asked(
            list(dict.fromkeys(one for each in found for one in each.ids)), found[0].values if len(given) == 1 else {}
        )
    values = _by_column(pipeline, given)
    return Asked(of_any_source(pipeline, values), values)


def _salt(pipeline: Pipeline) -> str:
    return pipeline.part.salt if pipeline.part else ""


def from_hex(text: str) -> RecordId:
    """The id of its 32 hexadecimal digits."""
    return RecordId(_signed(int(text[:16], 16)), _signed(int(text[16:], 16)))


def of_values(pipeline: Pipeline, values: dict[str, str], salt: str | None = None) -> RecordId:
    """The id of a record with these values, as people write them; `salt` of one of several sources (`Part`).

    Raises Refused.
    """
    kinds = ddl.types(pipeline.schema)
    before = _salt(pipeline) if salt is None else salt
    texts = [before.encode()] if before else []
    texts += [_string(column, kinds[column], values[column]).encode() for column in pipeline.record_id]
    return RecordId(_chained(texts), _chained([LOW, *texts]))


def of_any_source(pipeline: Pipeline, values: dict[str, str]) -> list[RecordId]:
    """The ids that such a record may have: one, or one for each of several sources with an id space of its own.

    Raises Refused.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources] or [pipeline]
    return list(dict.fromkeys(of_values(pipeline, values, _salt(view)) for view in views))


def of_file(path: str) -> int:
    """What stands for a file in the ids of its records, by position."""
    return _chained([path.encode()])


def of_place(file: int, position: int, salt: str = "") -> RecordId:
    """The id of the record that begins at a byte of a file (`of_file`); `salt` of one of several sources (`Part`)."""
    place = [*([salt.encode()] if salt else []), struct.pack("<q", file), struct.pack("<q", position)]
    return RecordId(_chained(place), _chained([LOW, *place]))


def _places(pipeline: Pipeline, given: Sequence[str]) -> Asked:
    if len(given) != 2 or not given[1].lstrip("-").isdecimal():
        raise Refused(
            f"a record of {pipeline.name} is known by its place: a file and a byte in it; of a topic a partition "
            "and an offset; of a table "
            "version/file and a row",
            hint="give the path of the file (or its name in the inbox) and the byte at which the line begins, or "
            "the partition "
            "and the offset; or the id itself as 32 hexadecimal digits",
        )
    if isinstance(pipeline.source, Kafka):
        # 'topic/partition', or the partition alone.
        places = dict.fromkeys([given[0], f"{pipeline.source.topic}/{given[0]}"])
        return Asked([of_place(of_file(place), int(given[1]), _salt(pipeline)) for place in places], {})
    if isinstance(pipeline.source, DeltaSource):
        return Asked([of_place(of_file(given[0]), int(given[1]), _salt(pipeline))], {})
    folder = inputs.folder(pipeline)
    assert folder is not None
    moved = moved_inboxes.of(pipeline.name)
    paths = [given[0], str(folder / given[0]), *(f"{named}/{Path(given[0]).name}" for named in moved)]
    if isinstance(pipeline.source, Growing):
        # Asked for by the identity (a file may be gone), or by a name that the file has now.
        opened = [Path(regular_file.place(path, links=pipeline.source.links)) for path in paths]
        paths += [who for who in map(file_identity.identity, opened) if who]
    return Asked([of_place(of_file(path), int(given[1]), _salt(pipeline)) for path in dict.fromkeys(paths)], {})


def _chained(texts: list[bytes]) -> int:
    state = SEED
    for text in texts:
        state = xxhash.xxh64_intdigest(text, seed=state)
    return _signed(state)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _by_column(pipeline: Pipeline, given: Sequence[str]) -> dict[str, str]:
    columns = pipeline.record_id
    values: Sequence[str] = given
    if len(given) == 1 and given[0].lstrip().startswith(("{", "[")):
        found = _json(given[0])
        values = [found[name] for name in columns if name in found] if isinstance(found, dict) else found
    if len(values) != len(columns):
        raise Refused(
            f"a record of {pipeline.name} is known by {len(columns)} value(s) ({', '.join(columns)}), but "
            f"{len(values)} were "
            "given",
            hint="give them in that order, or as a JSON object; or the id itself as 32 hexadecimal digits",
        )
    return dict(zip(columns, map(_plain, values), strict=True))


def _json(text: str) -> dict[str, str] | list[str]:
    try:
        # Numbers stay as they are written, as in a line.
        found = json.loads(text, parse_int=str, parse_float=str)
    except ValueError as error:
        raise Refused(f"{text!r} is not JSON: {error}", hint='like {"id": "a-17"}, in quotes for the shell') from error
    assert isinstance(found, dict | list)
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _string(column: str, kind: str, value: str) -> str:
    """Return the string of a value that a person wrote, as CSV has it."""
    try:
        return id_strings.FORMS[id_strings.named(kind)](_convert(kind)(Cell(value), []))
    except Unfit as why:
        because = f": {why}" if str(why) else ""
        raise Refused(
            f"{value!r} is no {kind}, which the id column {column} is{because}",
            hint="write it as docs/reference/values.md says of CSV",
        ) from None


def _convert(kind: str) -> Convert:
    name = id_strings.named(kind)
    if name != "decimal":
        return conversions.of_type(name)
    digits = [int(one) for one in re.findall(r"\d+", kind)]
    return conversions.decimal(digits[0] if digits else 10, digits[1] if len(digits) > 1 else 0)
