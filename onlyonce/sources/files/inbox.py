"""Entry point: shows where a pipeline's inbox was and where it is now, and takes a person's answer whether its files
were moved there.

Only that answer is written. Errors: Refused. No Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from onlyonce.declare.pipeline import Custom, DeltaSource, Growing, Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.report import Report
from onlyonce.sources.files import moved_inboxes
from onlyonce.sources.files.file_identity import first_line, identity

Said = Literal["moved", "another"]


def look(pipeline: Pipeline, said: Said | None) -> Report:
    """How the registry names the inbox and where it is; with `said`, what the files of a folder that is new to it
    are."""
    from onlyonce.sources import discovery, registry
    from onlyonce.storage import delta

    name, source = pipeline.name, pipeline.source
    if isinstance(source, Kafka | Custom | DeltaSource):
        raise Refused(f"{name} reads no folder", hint="nothing of it depends on where a folder is")
    folder, table = str(inputs.folder(pipeline)), registry.folder(pipeline, name) / stored_names.FILES_MANIFEST
    there = discovery.registered(table, pipeline) if delta.exists(table) else discovery.Registered({}, {})
    roots, moved = there.roots, moved_inboxes.of(name)
    if said is not None:
        _refuse_settled(name, folder, roots, moved)
        if said == "moved" and isinstance(source, Growing):
            _refuse_copies(pipeline, folder, set(there.known))
        if said == "another" and (known := [one for one in moved if f"{one}/".startswith(f"{folder}/")]):
            raise Refused(
                f"{known[0]} is the name of files of {name} that were moved away",
                data="nothing was changed",
                hint="give the new files a folder of another name",
            )
        moved_inboxes.tell(name, roots[-1] if said == "moved" else folder, folder)
    facts = {
        "inbox": folder,
        "was": moved_inboxes.last(roots, moved) if roots else None,
        "files known": len(there.marks),
    }
    try:
        facts["named"] = moved_inboxes.named(name, folder, roots, moved_inboxes.of(name))
    except Refused as error:
        return Report(f"{name}: its inbox is elsewhere", "asked", facts, {}, [f"{error.what}: {error.hint}"])
    return Report(f"{name}: its inbox", "told" if said else "asked", facts)


def _refuse_settled(name: str, folder: str, roots: tuple[str, ...], moved: moved_inboxes.Moved) -> None:
    try:
        moved_inboxes.named(name, folder, roots, moved)
    except Refused:
        return
    raise Refused(
        f"the inbox of {name}, {folder}, is where it was",
        data="nothing was changed",
        hint=f"nothing to do: onlyonce run {name}",
    )


def _refuse_copies(pipeline: Pipeline, folder: str, known: set[str]) -> None:
    """Files that grow are known by their inodes: a copy is another file, and would be read again from its beginning."""
    first_lines = {first_line(who) for who in known}
    for path in sorted(Path(folder).expanduser().glob("[!._]*")):
        who = identity(path)
        if who is not None and who not in known and first_line(who) in first_lines:
            raise Refused(
                f"{path} is a copy of a file that was read, and files that grow are known by their inodes",
                data="nothing was changed; the copy would be read again from its beginning",
                hint="move the folder within its file system (mv), which keeps them",
            )
