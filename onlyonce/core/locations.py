"""A location of data: a path of a file system, or a URL of an object store; and the folders of attempts. Pure.

A `Url` is joined, named and compared as a path is, so most code need not know which of the two it has.
`onlyonce.tables.stores` reads and writes at a location.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import FOLDER

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss"}
"""The supported kinds of URL, and how tables and logs write each: one object has one name."""
_URL = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):/")
"""A blank in front of a URL does not make it a path."""
_WHOLE = re.compile(r"([a-z0-9]+)://([^/?#]+)(?:/([^?#]*))?")


@dataclass(frozen=True, order=True)
class Url:
    """An object, or all objects below it.

    `root` is scheme and bucket (for abfss container and account); `key` neither begins nor ends with a slash.
    """

    root: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str | PurePosixPath) -> Url:
        return self.joinpath(str(name))

    def joinpath(self, *names: str) -> Url:
        """Return the location below, as `Path.joinpath`. No name may be absolute."""
        assert not any(name.startswith("/") for name in names), names
        return Url(self.root, _key(PurePosixPath(self.key).joinpath(*names)))

    def with_name(self, name: str) -> Url:
        """Return the location with another last name, as `Path.with_name`."""
        return Url(self.root, str(PurePosixPath(self.key).with_name(name)))

    def relative_to(self, other: Url) -> PurePosixPath:
        """Return the path from a location above, as `Path.relative_to`. Raise ValueError if `other` is not above."""
        if other.root != self.root:
            raise ValueError(f"{self} is not below {other}")
        return PurePosixPath(self.key).relative_to(other.key)

    @property
    def name(self) -> str:
        """Return the last part of the key."""
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> Url:
        """Return the location above."""
        return Url(self.root, _key(PurePosixPath(self.key).parent))

    @property
    def scheme(self) -> str:
        """Return the protocol of the store: s3, gs or abfss."""
        return self.root.partition(":")[0]


def _key(path: PurePosixPath) -> str:
    return "" if path == PurePosixPath() else str(path)


Location = Path | Url


def on_disk(at: Location) -> Path:
    """Return the location as a path, for work that only a file system supports so far. Raise Refused for a URL."""
    if isinstance(at, Path):
        return at
    raise Refused(
        f"the data is at {at.root}, and this works with data on a file system only so far",
        data="nothing was read or written",
        hint="docs/how-to/object-store.md has what works with data in a store; Spark, delta-rs and DuckDB read "
        "the tables there",
    )


def below(at: Location, above: Location) -> PurePosixPath:
    """Return the path from a location above of the same kind. Raise ValueError if `above` is not above."""
    if isinstance(at, Url):
        assert isinstance(above, Url)
        return at.relative_to(above)
    assert not isinstance(above, Url)
    return PurePosixPath(at.relative_to(above))


def in_openlineage(at: Location) -> tuple[str, str]:
    """Return the namespace and name of a folder or prefix in OpenLineage."""
    return (at.root, at.key) if isinstance(at, Url) else ("file", str(at))


def is_s3(at: Location) -> bool:
    """Return whether a location is in an S3, Amazon's or another."""
    return isinstance(at, Url) and at.scheme == "s3"


def is_url(text: str) -> bool:
    """Return whether a string is a URL, and no path."""
    return _URL.match(text) is not None


def location(text: str, whose: str = "a location") -> Location:
    """Return the location of a path or URL that a person wrote.

    Raise Refused for a URL of another kind, for one with a query, a fragment or a login, and for the home of a user
    that this machine does not have.
    """
    kind = _URL.match(text)
    if kind is None:
        try:
            return Path(text).expanduser()
        except RuntimeError as error:
            raise Refused(
                f"{whose} is {text!r}: this machine knows no such user, or no home of theirs",
                data="nothing was read or written",
                hint="write the whole path, from / on",
            ) from error
    parts = _WHOLE.fullmatch(text)
    scheme = SCHEMES.get(kind[1])
    if (
        parts is None
        or scheme is None
        or ("@" in parts[2]) is not (scheme == "abfss")
        or (parts[2].partition("@")[0].count(":"))
    ):
        raise Refused(
            f"{whose} is {_without_login(text)!r}: not s3://bucket/prefix, gs://bucket/prefix or "
            "abfss://container@account.dfs.core.windows.net/prefix",
            data="nothing was read or written",
            hint="a key, an endpoint or a region goes into the standard variables of the store "
            "(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …), not into the URL",
        )
    names = [name for name in (parts[3] or "").split("/") if name]
    if {".", ".."} & {*names}:
        raise Refused(
            f"{whose} is {text!r}: '.' and '..' are names like others in a store",
            data="nothing was read or written",
            hint="write the whole key",
        )
    return Url(f"{scheme}://{parts[2]}", "/".join(names))


def stored_location(text: str) -> Location:
    """Return the location that was stored as this string. Unlike `location`, a path may begin with `~`."""
    return location(text) if is_url(text) else Path(text)


def _without_login(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", text).partition("?")[0]


# Folders that people name.
#
# Only `Files` takes a URL for a folder. The path of an inbox is absolute, so it is the same for every user and working
# directory.


def check_folder(whose: str, named: str | None) -> None:
    """Raise Refused for a URL, which would become a local folder of that name, and for a name no folder can have."""
    if named and is_url(named):
        raise Refused(
            f"{whose} is {named!r}, a URL: it would become a local folder of that name",
            data="nothing was read or written",
            hint="name a folder that is mounted wherever the pipeline runs, without file://. Of all places only "
            "Files(inbox='s3://bucket/prefix'), Delta(path='s3://bucket/table'), "
            "FileSink(path='s3://bucket/folder') and ONLYONCE_DATA may be in an object store",
        )
    if long := [part for part in (named or "").split("/") if FOLDER.size(part) > FOLDER.most]:
        raise Refused(
            f"{whose} has the part {long[0]!r}, which is longer than {FOLDER.most} bytes",
            data="nothing was read or written",
            hint="give the folder a shorter name: no file system has one this long",
        )


def check_target(whose: str, named: str | None) -> None:
    """Raise Refused for a folder of results that is no folder, or another one for each user."""
    check_folder(whose, named)
    if named is not None and named.startswith("~"):
        raise Refused(
            f"{whose} is {named!r}: another folder for each user that runs it",
            data="nothing was read or written",
            hint="write the whole path, from / on; or a path below the folder in the home, without ~",
        )


def check_inbox(whose: str, named: str | None) -> None:
    """Raise Refused for a folder that depends on the user or the working directory."""
    check_folder(f"{whose}: inbox", named)
    if named is not None and not named.startswith("/"):
        raise Refused(
            f"{whose}: inbox {named!r} is another folder if it runs elsewhere, or as another user",
            data="nothing was read or written",
            hint="write the whole path, from / on; or leave it out: <home>/inbox/<pipeline>",
        )


# The folders in which attempts write data files of the platform's own tables.
#
# The folder's name identifies the attempt. A data file counts when a commit names it. Once the transaction of an
# attempt is in the table, no further commit names the attempt's files: each retry finds the transaction and adds
# nothing.


_FOLDER = re.compile(r"(\d+)-([a-z_]+)-(-?\d+)-[0-9a-f]{32}")
NO_INCARNATION = "0"
"""Stands for the incarnation in the folder of a manifest, which all incarnations share. Incarnations count from 1."""
HOUSEKEEPING = (stored_names.COMPACTION_BY, stored_names.RETENTION_BY)
"""Commits that rewrite or remove rows of `events`, under incarnation 0 of receive (`stored_names.housekeeping`)."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a commit: receive's incarnation (0 for a manifest), what is committed, and the transaction's
    number.

    What is committed is `events`, `close` or `files`, for example."""

    ordinal: int
    kind: str
    version: int

    def app_id(self, instance: str) -> str:
        """Return the transaction id under which the attempt commits."""
        of_receive = self.ordinal or self.kind in HOUSEKEEPING
        written_by = stored_names.incarnation(instance, "receive", self.ordinal) if of_receive else instance
        return stored_names.transaction(written_by, self.kind)


def attempt_folder(app_id: str, version: int, random: str) -> str:
    """Return the name of an attempt's folder."""
    _, *below = app_id.split("/")
    *_, ordinal, kind = ("", NO_INCARNATION, *below)
    named = stored_names.attempt_folder(ordinal, kind, version, random)
    return named if _FOLDER.fullmatch(named) else random


def read_attempt(name: str) -> Attempt | None:
    """Return the attempt that a folder's name identifies; None if it is none, or of an older version."""
    found = _FOLDER.fullmatch(name)
    return Attempt(int(found[1]), found[2], int(found[3])) if found else None
