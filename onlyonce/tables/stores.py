"""Flushes to the disk what was written: a file, or the names in a folder. Who calls it: `onlyonce.sources.pubsub`,
`onlyonce.sinks.files.file_stores`, `onlyonce.tables.rewrite`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import obstore
from obstore import exceptions
from obstore.store import from_url

from onlyonce.core import failures, stored_names
from onlyonce.core.errors import Retryable
from onlyonce.core.locations import Location, Url, is_s3
from onlyonce.environment import variable

if TYPE_CHECKING:
    from obstore.store import RetryConfig


def sync(path: Location) -> None:
    """It is there after a power cut too, as an object is without more. Raises OSError of the disk."""
    if not isinstance(path, Path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What each library is told of an object store.
#
# No secret is among it: delta-rs, obstore and Hadoop find those themselves.
#
# Each of them reads the standard variables (AWS_ACCESS_KEY_ID and its companions, AWS_ENDPOINT_URL, AWS_REGION;
# GOOGLE_APPLICATION_CREDENTIALS; AZURE_STORAGE_ACCOUNT_NAME, …) or asks for the role of the machine. So nothing of it
# can get into a log, a table, or Spark's page. What is said here is what they would not find out: that an endpoint
# speaks plain HTTP.
#
# Who calls it: `opening`, `objects`, `onlyonce.engine.options`. Errors: none. Pure but for the environment.


ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
ON_DISK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts four processes for each file that it writes to a disk, to set and ask its permissions: 40 ms.
This one starts one: 10 ms. Each looks whether the file is there, and then renames."""


def options_of_delta(at: Location) -> dict[str, str] | None:
    """The storage options of delta-rs; None for a local path."""
    if not isinstance(at, Url):
        return None
    given = {"aws_endpoint_url": store_endpoint(), "aws_region": store_region()} if is_s3(at) else {}
    return {key: value for key, value in given.items() if value} | ({"allow_http": "true"} if plain_http(at) else {})


def options_of_spark(at: Location) -> dict[str, str]:
    """The settings of a Spark session that has data there.

    `s3://` is spoken by S3A, so that a table has one name for all its readers.
    """
    if not isinstance(at, Url):
        return {CHECKPOINTS: ON_DISK}
    if not is_s3(at):
        return {}
    found = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint.region": store_region() or "us-east-1",
        # One PUT for a file of a checkpoint. Spark's default writes another and renames it, which is twenty requests
        # there, and no more atomic.
        CHECKPOINTS: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    }
    if named := store_endpoint():
        found |= {
            "spark.hadoop.fs.s3a.endpoint": named,
            "spark.hadoop.fs.s3a.path.style.access": "true",  # a server of one's own seldom has a name for each bucket
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not plain_http(at)).lower(),
        }
    return found


def store_endpoint() -> str | None:
    """The address of an S3 that is not Amazon's."""
    return next((found for name in ENDPOINTS if (found := variable(name))), None)


def store_region() -> str | None:
    """The region of buckets; None where the library is to find out."""
    return next((found for name in REGIONS if (found := variable(name))), None)


def plain_http(at: Url) -> bool:
    """Whether the store is spoken to without TLS, as one on this machine is."""
    if at.scheme == "abfss":
        return (variable("AZURE_STORAGE_USE_EMULATOR") or "").lower() == "true"
    if at.scheme == "gs":  # where that is, the key file of the service account says
        return (variable("STORAGE_EMULATOR_HOST") or "").startswith("http://")
    return is_s3(at) and (store_endpoint() or "").startswith("http://")


# What is at a location, and how it gets there: one interface for a local disk and for object stores.
#
# | module   | holds                                                                               |
# |----------|-------------------------------------------------------------------------------------|
# | local    | a disk: a file gets its name by a rename, or by a link where it must be new         |
# | objects  | S3, GCS and ADLS by obstore                                                         |
# | arrow    | Arrow's own file system for a location, for rows                                    |
# | sink     | an object that Arrow writes                                                         |
# | options  | what delta-rs, obstore and Spark are told of a store; never a secret                |
# | claiming | a prefix is one platform's, and the store has a conditional PUT: seen at the first start |
#
# The object side is `obstore`, the crate under delta-rs: so files and commits are written by one client, with one set
# of variables, and it has what everything here rests on, a PUT that is carried out only if the key is not there.
# `pyarrow.fs`, which was there before, has no conditional PUT, no ETag, and no conditional range; it stays where Arrow
# itself reads rows.
#
# Who calls it: whatever reads or writes data of the platform. Errors: FileNotFoundError where a read finds nothing;
# Changed; Refused for a store that does not let us in; Retryable for one that is away. Not promised: the order of two
# writers of `put`; use `put_new` where it matters.


class Changed(Retryable):
    """What was to be read is no longer what was listed: its ETag is another."""


@dataclass(frozen=True)
class Entry:
    """One file or object.

    `etag` is opaque: another one means other content. `modified`: seconds since 1970, by the store's clock.
    """

    at: Location
    bytes: int
    etag: str
    modified: float


class Store(Protocol):
    """One place for files. Whole files only: what can be seen is complete."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """All that is below, at any depth, page by page; nothing where there is nothing. In no order."""

    def unfinished(self, below: Location) -> Iterator[Location]:
        """What killed writers have left below, which no reader sees; and folders without anything in them."""

    def names(self, at: Location) -> Iterator[str]:
        """The names directly below, of files and of folders; nothing where there is nothing. In no order."""

    def look(self, at: Location) -> Entry | None:
        """What is there; None for nothing."""

    def read(self, at: Location) -> bytes:
        """All of it. Raises FileNotFoundError."""

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """The bytes from `begin` up to `end`, of this content.

        Raises Changed if there is another, FileNotFoundError if none.
        """

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """What is there, and its last bytes; all of them where there are no more. Raises FileNotFoundError."""

    def put(self, at: Location, content: bytes) -> None:
        """Write it, whatever was there. For good when this returns."""

    def put_new(self, at: Location, content: bytes) -> bool:
        """Write it only if nothing is there; False if something is. Of writers at once one wins.

        An answer that was lost is asked for again: then what is there has these bytes, and it counts as ours. So
        writers that must know which of them won write something of their own.
        """

    def delete(self, at: Location) -> None:
        """Take it away. No error where nothing is."""

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """Delete what has these names directly below, in few requests. Where one is not there others may stay."""

    def clear(self, below: Location) -> None:
        """Take away what is there, and all that is below, at any depth, and the folders.

        No error where nothing is. A kill leaves a part of it, in no order.
        """

    def renew(self, at: Location) -> None:
        """Its time of modification is now, and its content what it was.

        No error where nothing is. To an object all of it is written again.
        """


def of(at: Location) -> Store:
    """The store of a location."""
    if isinstance(at, Path):
        return LocalFiles()

    return Objects()


def anything(below: Location) -> bool:
    """Whether there is anything at or below a location."""
    return any(True for _ in of(below).entries(below))


# Files of a local disk behind the interface of stores.
#
# The ETag is what tells one content from the next: inode, size and time of change.
#
# Who calls it: `stores.of`. Errors: those of the interface; OSError of the disk. Not promised: that a folder which
# became empty goes.


PARTIAL = stored_names.PARTIAL_SUFFIX
"""A file with this ending has not got its name yet. A killed writer leaves it; nobody reads it."""


class LocalFiles:
    """The local side."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        for folder, _, names in os.walk(_path(below)):
            for name in names:
                if not name.endswith(PARTIAL) and (entry := self.look(Path(folder, name))):
                    yield entry

    def unfinished(self, below: Location) -> Iterator[Location]:
        """See the interface."""
        for folder, folders, names in os.walk(_path(below), topdown=False):
            yield from (Path(folder, name) for name in names if name.endswith(PARTIAL))
            if not folders and not names:
                yield Path(folder)

    def names(self, at: Location) -> Iterator[str]:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(_path(at)) as found:
            yield from (one.name for one in found if not one.name.endswith(PARTIAL))

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError):
            stat = _path(at).stat()
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime) if _path(at).is_file() else None
        return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        return _path(at).read_bytes()

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        with _path(at).open("rb") as file:
            file.seek(begin)
            found = file.read(end - begin)
            # Looked at last: a file that was written over while it was read is another one by now.
            if _etag(os.fstat(file.fileno())) != etag:
                raise changed(at)
        return found

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """See the interface."""
        with _path(at).open("rb") as file:
            stat = os.fstat(file.fileno())
            file.seek(max(stat.st_size - length, 0))
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime), file.read()

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        partial = _partial(_path(at), content)
        partial.replace(_path(at))
        sync(_path(at).parent)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        partial = _partial(_path(at), content)
        try:
            os.link(partial, _path(at))
        except FileExistsError:
            return _path(at).read_bytes() == content
        finally:
            partial.unlink()
        sync(_path(at).parent)
        return True

    def delete(self, at: Location) -> None:
        """See the interface."""
        _path(at).unlink(missing_ok=True)

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """See the interface."""
        for name in names:
            self.delete(below / name)

    def clear(self, below: Location) -> None:
        """See the interface."""
        if _path(below).is_dir():
            shutil.rmtree(_path(below), onerror=_unless_gone)
        else:
            self.delete(below)

    def renew(self, at: Location) -> None:
        """See the interface."""
        with suppress(FileNotFoundError):
            os.utime(_path(at))


def changed(at: Location) -> Changed:
    """What a reader is told whose file is another one by now."""
    return Changed(
        f"{at} has changed since it was listed", data="nothing of it was taken", hint="run the same command again"
    )


def _unless_gone(_: Any, __: str, told: tuple[Any, BaseException, Any]) -> None:
    if not isinstance(told[1], FileNotFoundError):
        raise told[1]


def _partial(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}{PARTIAL}")
    partial.write_bytes(content)
    sync(partial)
    return partial


def _path(at: Location) -> Path:
    assert isinstance(at, Path)
    return at


def _etag(stat: Any) -> str:
    return f"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"


# Objects of S3, GCS and ADLS behind the interface of stores, by obstore.
#
# A PUT is whole or not there, and its answer is for good.
#
# obstore asks again after a 500, a 503 and a dropped connection, with growing pauses, for as long as `PATIENCE`.
# Consoles, Arrow and S3A mark a folder by an empty object whose key ends in `/`. obstore lists it without the slash,
# and can neither read nor delete it: here it is none. Who calls it: `stores.of`. Errors: those of the interface. Not
# promised: that an object which a role may not list is told from one that is not there.


PAGE = 1000
"""Objects of one answer to a listing: what S3 gives at most."""
AT_ONCE = 16
PATIENCE = timedelta(seconds=60)
GONE_AGAIN = 5
"""How often a PUT is tried while its object is there for the PUT, and not for the GET after it."""
DENIED = (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
NO_CREDENTIALS = ("credential", "169.254.169.254")
"""What is in the error of a client that has found no key, and no role to ask for one."""


@dataclass(frozen=True)
class Objects:
    """The side of object stores. `retries`: how often a request is sent again at most."""

    retries: int = 10

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        url = _url(below)
        with told(url):
            for page in obstore.list(self.bucket(url), url.key or None, chunk_size=PAGE):
                yield from self._no_markers(
                    [_entry(Url(url.root, one["path"]), one) for one in page if one["path"] != url.key]
                )

    def unfinished(self, below: Location) -> Iterator[Location]:
        """See the interface. The parts of an upload that was not ended are no objects, and a store has no folders."""
        yield from ()

    def names(self, at: Location) -> Iterator[str]:
        """See the interface."""
        url = _url(at)
        with told(url):
            found = obstore.list_with_delimiter(self.bucket(url), url.key or None)
        yield from (Url(url.root, one["path"]).name for one in found["objects"] if one["path"] != url.key)
        yield from (Url(url.root, prefix).name for prefix in found["common_prefixes"])

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        url = _url(at)
        try:
            with told(url):
                return _entry(url, obstore.head(self.bucket(url), url.key))
        except FileNotFoundError:
            return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        url = _url(at)
        with told(url):
            return bytes(obstore.get(self.bucket(url), url.key).bytes())

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        url = _url(at)
        try:
            with told(url):
                found = obstore.get(self.bucket(url), url.key, options={"range": (begin, end), "if_match": etag})
                return bytes(found.bytes())
        except Changed:
            if self.look(at) is None:  # of what is gone some stores say that the condition does not hold
                raise FileNotFoundError(str(at)) from None
            raise

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """See the interface."""
        url = _url(at)
        if url.scheme == "abfss":  # it has no ranges from the end
            entry = self.look(at)
            if entry is None:
                raise FileNotFoundError(str(at))
            return entry, self.read_range(
                at, max(entry.bytes - length, 0), entry.bytes, entry.etag
            ) if entry.bytes else b""
        with told(url):
            found = obstore.get(self.bucket(url), url.key, options={"range": {"suffix": length}})
            return _entry(url, found.meta), bytes(found.bytes())

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        url = _url(at)
        with told(url):
            obstore.put(self.bucket(url), url.key, content)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        for _ in range(GONE_AGAIN):
            if self._put_if_absent(_url(at), content):
                return True
            with suppress(FileNotFoundError):  # somebody removed it since, or still writes it
                return self.read(at) == content
        raise Retryable(
            f"{at} is there when it is to be put, and is not when it is read",
            data="nothing was written",
            hint="run the same command again; if it stays so, find out who writes and removes that object",
        )

    def delete(self, at: Location) -> None:
        """See the interface."""
        url = _url(at)
        try:
            with told(url):
                obstore.delete(self.bucket(url), url.key)
        except FileNotFoundError:
            pass

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """See the interface."""
        urls = [_url(below / name) for name in names]
        with suppress(FileNotFoundError), told(_url(below)):
            obstore.delete(self.bucket(urls[0]), [url.key for url in urls])

    def clear(self, below: Location) -> None:
        """See the interface."""
        url = _url(below)
        if url.key:
            self.delete(url)
        with told(url):
            for page in obstore.list(self.bucket(url), url.key or None, chunk_size=PAGE):
                obstore.delete(self.bucket(url), [one["path"] for one in page])

    def renew(self, at: Location) -> None:
        """See the interface."""
        with suppress(FileNotFoundError):  # no store that was tried copies an object onto itself without more
            self.put(at, self.read(at))

    def _no_markers(self, found: list[Entry]) -> list[Entry]:
        """Of some entries those that are objects by their names: a request for each that is empty."""
        empty = {one.at: one for one in found if not one.bytes}
        if not empty:
            return found
        with ThreadPoolExecutor(min(len(empty), AT_ONCE)) as pool:
            looks = list(pool.map(self.look, empty))
        return [one for one in found if one.bytes] + [
            one for one, there in zip(empty.values(), looks, strict=True) if there and not there.bytes
        ]

    def _put_if_absent(self, url: Url, content: bytes) -> bool:
        with told(url):
            try:
                # In one request: the parts of a longer upload would be put together without the condition.
                obstore.put(self.bucket(url), url.key, content, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def bucket(self, at: Url) -> Any:
        """The client of a bucket."""
        return _made(at.root, plain_http(at), store_endpoint(), store_region(), self.retries)


def _url(at: Location) -> Url:
    assert isinstance(at, Url)
    return at


def _entry(at: Url, found: Any) -> Entry:
    etag = found["e_tag"] or found["version"] or ""
    # Azure's listings tell it without its quotes: one content has one ETag here, whoever tells it.
    return Entry(at, found["size"], f'"{etag.strip(chr(34))}"', found["last_modified"].timestamp())


@lru_cache(maxsize=32)
def _made(root: str, plain_http: bool, endpoint: str | None, region: str | None, retries: int) -> Any:
    """A client with its connections; another one where the variables say another place.

    Keys it reads itself, when it is made.
    """
    given = {"endpoint": endpoint, "region": region} if root.startswith("s3:") else {}
    more: dict[str, Any] = {key: value for key, value in given.items() if value}
    patience: RetryConfig = {"max_retries": retries, "retry_timeout": PATIENCE}
    return from_url(root, client_options={"allow_http": plain_http}, retry_config=patience, **more)


@contextmanager
def told(at: Url) -> Iterator[None]:
    """The errors of obstore as those of the interface. Their texts have URLs and answers of the store, and no key."""
    try:
        yield
    except FileNotFoundError as error:  # obstore's own word for an answer of 404
        # A bucket that is gone, or a key that nobody knows, is not "no object": whoever asks would take it for an empty
        # store.
        if _code(error) in (None, *failures.NO_OBJECT):
            raise FileNotFoundError(str(at)) from error
        raise failures.store_refused(_where(at, error), _code(error)) from error
    except exceptions.PreconditionError as error:
        raise changed(at) from error
    except DENIED as error:
        raise failures.store_refused(_where(at, error), _code(error)) from error
    except exceptions.GenericError as error:
        if _code(error) in failures.SHUT_OUT or any(mark in str(error).lower() for mark in NO_CREDENTIALS):
            raise failures.store_refused(_where(at, error), _code(error)) from error
        raise failures.store_away(at.root, str(error).splitlines()[0]) from error


def _where(at: Url, error: Exception) -> str:
    return str(at) if _code(error) in failures.NO_BUCKET else at.root


def _code(error: Exception) -> str | None:
    """What the store itself says is wrong."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else None
