"""Number the panes of a batch, and name their files by the output's function if it declares one (`FileSink.names`).

The names are decided twice. Before the files of a batch are written, a name that can't be given is refused: nothing is
written yet, so the function can be corrected. The transaction that ends the batch decides them for good, with the panes
that it numbers. From then on the log has the names, and `onlyonce finalize` calls no function.
"""

from __future__ import annotations

from collections.abc import Iterable

from onlyonce.api import load
from onlyonce.api.pipeline import Output
from onlyonce.api.sinks import FileSink
from onlyonce.commitlog.files import Files, Times
from onlyonce.core import file_names
from onlyonce.core.file_names import FileKey


def check_next(files: Files, output: Output, place: str, instance: str, windows: Iterable[Times]) -> None:
    """Raise Refused if the next panes of these windows can't be named."""
    if not output.sink.names:
        return
    panes = files.next_panes(instance, output.name, windows)
    keys = [FileKey(*window, pane, shard) for window, pane in panes.items() for shard in range(_sink(output).shards)]
    _names(files, output, place, keys, file_names.NOTHING_WRITTEN)


def give(files: Files, output: Output, place: str, incarnation: str, batch_id: int) -> None:
    """Number the panes of a batch and name their files, in the transaction that ends the batch. Raise Refused.

    A repetition changes nothing.
    """
    files.give_panes(incarnation, batch_id, output.name)
    if output.sink.names:
        numbers = files.unnamed(incarnation, batch_id, output.name)
        named = _names(files, output, place, numbers, file_names.NOT_ENDED)
        files.give_names({numbers[key]: name for key, name in named.items()})


def _names(files: Files, output: Output, place: str, keys: Iterable[FileKey], data: str) -> dict[FileKey, str]:
    subject, sink = load.subject_of_names(output), _sink(output)
    named = file_names.name_files(load.naming(output), subject, keys, sink.shards, sink.ending, data)
    file_names.refuse_taken(subject, named, files.named(place, named.values()), data)
    return named


def _sink(output: Output) -> FileSink:
    assert isinstance(output.sink, FileSink)
    return output.sink
