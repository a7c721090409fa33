"""The identity of a target: the same string for the same table or folder, however its path or name is written.

| target | its identity |
|---|---|
| Delta(path="a//b/"), FileSink(path="../tables/a/b") | folder:tables/a/b, from the home; links are followed |
| a folder outside the home | folder:/mnt/lake/a |
| FileSink(path="s3a://bucket/a/?region=x") | s3://bucket/a; the options say how to get there |
| Postgres | postgres:<database>:<table>, the table's name as long as PostgreSQL takes it |
| Iceberg | iceberg:<catalog>:<table>, by the catalog's name, in small letters |
| MySQL | mysql:<database>:<table>, in small letters: many servers know no others |

At a run a database is identified by what it says of itself, whatever its address. If declarations are only read, it is
identified by its address. Two object stores with buckets of one name look the same, and two names of one Iceberg
catalog look different. In these cases the note in the table itself names its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath

from onlyonce import environment, settings
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.core.database_url import address
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url, is_url
from onlyonce.core.ownership import Place, suffix_of


def targets(pipeline: Pipeline, instance: str) -> list[str]:
    """Return the places that the outputs of an instance write to as they are declared now."""
    return [Place(target(pipeline, output)).of_run(suffix_of(instance)).text for output in pipeline.outputs]


def identity(place: Place, database: Callable[[str | None], str], suffix: str = "") -> str:
    """Return the same string for all spellings of one place.

    database  returns the identity of the database whose URL a variable holds (None: the platform's database)
    suffix    what a bounded run adds to the declared name (@1)
    """
    place = place.of_run(suffix)
    kind = place.of_target
    if kind is not None and kind.folder:
        return _folder(place.where, settings.root_of(kind.folder))
    of_database = kind is not None and kind.in_database
    text = f"{place.kind}:{database(place.variable)}:{place.where}" if of_database else place.text
    return text.lower() if kind is not None and kind.ignores_case else text


def declared_identity(place: str) -> str:
    """Return the identity of a place by its text, without a connection to its database."""
    return identity(Place(place), by_address)


def _folder(where: str, root: Location) -> str:
    if is_url(where):
        scheme, rest = where.partition("?")[0].split("://", 1)
        return f"{scheme.lower().replace('s3a', 's3').replace('s3n', 's3')}://{normpath(rest)}"
    at = Path(where) if where.startswith("/") else root / where
    if isinstance(at, Url):
        return f"{at.root}/{normpath(at.key)}"
    folder, home = at.resolve(), settings.home().resolve()
    return f"folder:{folder.relative_to(home) if folder.is_relative_to(home) else folder}"


def by_address(variable: str | None) -> str:
    """Return a database's address without connecting to it, or the name of its variable if that is not set."""
    url = environment.variable(variable) if variable else settings.given_database_url()
    if not url:
        return variable or "platform"
    try:
        return address(url)
    except ValueError:  # no URL: opening it is refused later, for its output alone
        return variable or "platform"


def refuse_own_tables(pipelines: Iterable[Pipeline]) -> None:
    """Raise Refused for a lookup in a table of its own pipeline: its content would depend on which output ran first."""
    for pipeline in pipelines:
        written = {
            declared_identity(place): output.name
            for output in pipeline.outputs
            if Place(place := target(pipeline, output)).of_target
        }
        for output in pipeline.outputs:
            for lookup in output.lookups:
                same = declared_identity(lookup.table.target(""))
                if same in written:
                    raise Refused(
                        f"{declared_at(lookup)}lookup {lookup.name} of output {output.name} is the table that output "
                        f"{written[same]} of the same pipeline writes",
                        data="nothing was read or written",
                        hint=f"make {output.name} from that output: from_output={written[same]!r}; or declare "
                        f"{output.name} in another pipeline",
                    )


def refuse_shared(pipelines: Iterable[Pipeline]) -> None:
    """Raise Refused if two outputs write to one table or folder, or to one inside another.

    Raise it also if an output writes to a table that the platform derives from another output's table."""
    declared = sorted(
        (declared_identity(place.text), f"{pipeline.name}/{output.name}")
        for pipeline in pipelines
        for output in pipeline.outputs
        for place in _all_of(Place(target(pipeline, output)), output)
        if place.of_target
    )
    # Sorted: a folder comes before all that is inside it.
    owners: dict[str, str] = {}
    for same, whose in declared:
        parts = same.split("/")
        for inside in ("/".join(parts[:n]) for n in range(1, len(parts) + 1)):
            if inside in owners:
                raise Refused(
                    f"{owners[inside]} and {whose} write to one target: {same}"
                    + (f" is inside {inside}" if inside != same else ""),
                    data="nothing was read or written; a backfill or vacuum of one would remove the rows of the other",
                    hint="give each output a table or folder of its own, and put them together where they are read",
                )
        owners[same] = whose


def _all_of(place: Place, output: Output) -> list[Place]:
    beside = kept_beside(place, output)
    return [place, beside.place] if beside else [place]


@dataclass(frozen=True)
class Kept:
    """The table that the platform keeps next to an output's table.

    what      what it keeps, up to the name of the output's table
    without   what could happen to the output's rows without it
    """

    place: Place
    what: str
    without: str


def kept_beside(place: Place, output: Output) -> Kept | None:
    """Return the table that the platform derives from an output's table at a place; None if it derives none."""
    kind = place.of_target
    if kind is None or kind.names is None:
        return None
    _, name = kind.split(place.where.rstrip("/"))
    before = place.text.rstrip("/").removesuffix(name)
    if output.sink.delete_when:
        deleted = Place(before + kind.names.deleted(name))
        return Kept(deleted, "the keys of the rows deleted from", "an older row could come back after its deletion")
    if output.on_backfill == "correct":
        window_sums = Place(before + kind.names.window_sums(name))
        return Kept(window_sums, "what each window has added to", "a backfill would add its windows twice")
    return None
