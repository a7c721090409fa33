"""Take the least and largest values of columns out of a Delta table's log, in the entries that a search names.

The rows stay, and every version can be read as before.

An entry is replaced by one with the same actions, and without these statistics: readers skip fewer files. Who calls it:
an erasure. No driver may write to the table meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from onlyonce.model.storage.location import Location
from onlyonce.storage import log_entries, opening, stores
from onlyonce.storage.log_entries import LOG

BOUNDS = ("minValues", "maxValues")


def remove(path: Location, mentioned: Callable[[Location], bool]) -> None:
    """Rewrite the entries for which `mentioned` is true, and replace checkpoints that are mentioned by a new one of the
    last version."""
    store, log = stores.of(path), path / LOG
    # Delta has folders in its log's folder, which `look` does not take for files.
    named = sorted(name for name in store.names(log) if store.look(log / name) and mentioned(log / name))
    for name in named:
        if name.endswith(".json") and name[:20].isdecimal():
            lines = store.read(log / name).decode().splitlines()
            store.put(log / name, "".join(f"{_without(line)}\n" for line in lines).encode())
            store.delete(log / f".{name}.crc")  # Hadoop's checksum of the file as it was
        elif name.endswith(".crc"):
            store.delete(log / name)  # what a version has, a second time, for speed only
    if any(".checkpoint" in name for name in named):
        table = opening.table(path)
        table.create_checkpoint()
        last = f"{table.version():020}.checkpoint.parquet"
        for name in named:
            if ".checkpoint" in name and name != last:
                store.delete(log / name)
                store.delete(log / f".{name}.crc")


def _without(line: str) -> str:
    action = json.loads(line)
    for file in (action.get("add"), action.get("remove")):
        if file and isinstance(file.get("stats"), str):
            stats = {name: value for name, value in json.loads(file["stats"]).items() if name not in BOUNDS}
            file["stats"] = log_entries.text(stats)
    return log_entries.text(action)
