"""A location of data: a path of a file system, or a URL of an object store. Pure.

A `Url` is joined, named and compared as a path is, so most code does not ask which of the two it has. What is there,
only a store says (`onlyonce.storage.stores`). Errors: Refused for a URL that is not one of the kinds below, or that
carries a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onlyonce.model.errors import Refused

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss"}
"""The kinds of URL that there are, and how each is written in a table and in a log: one object has one name."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_WHOLE = re.compile(r"([a-z0-9]+)://([^/?#]+)(?:/([^?#]*))?")


@dataclass(frozen=True, order=True)
class Url:
    """An object, or all objects below it.

    `root` is scheme and bucket (of abfss container and account); `key` has no slash at its ends.
    """

    root: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str | PurePosixPath) -> Url:
        return self.joinpath(str(name))

    def joinpath(self, *names: str) -> Url:
        """The location below, as `Path.joinpath`; an absolute name is none below."""
        assert not any(name.startswith("/") for name in names), names
        return Url(self.root, str(PurePosixPath(self.key).joinpath(*names)))

    def with_name(self, name: str) -> Url:
        """The location beside, as `Path.with_name`."""
        return Url(self.root, str(PurePosixPath(self.key).with_name(name)))

    def relative_to(self, other: Url) -> PurePosixPath:
        """The way from a location above, as `Path.relative_to`; raises ValueError where that is not above."""
        if other.root != self.root:
            raise ValueError(f"{self} is not below {other}")
        return PurePosixPath(self.key).relative_to(other.key)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> Url:
        """The location above."""
        above = str(PurePosixPath(self.key).parent)
        return Url(self.root, "" if above == "." else above)

    @property
    def scheme(self) -> str:
        """How the store is spoken to: s3, gs or abfss."""
        return self.root.partition(":")[0]


Location = Path | Url


def on_disk(at: Location) -> Path:
    """The location as a path, for what only a file system can do so far. Raises Refused for a URL."""
    if isinstance(at, Path):
        return at
    raise Refused(
        f"the data is at {at.root}, and this works with data on a file system only so far",
        data="nothing was read or written",
        hint="docs/how-to/object-store.md has what works with data in a store; Spark, delta-rs and DuckDB read "
        "the tables there",
    )


def below(at: Location, above: Location) -> PurePosixPath:
    """The way from a location above, which is of the same kind. Raises ValueError where that is not above."""
    if isinstance(at, Url):
        assert isinstance(above, Url)
        return at.relative_to(above)
    assert not isinstance(above, Url)
    return PurePosixPath(at.relative_to(above))


def is_s3(at: Location) -> bool:
    """Whether it is in an S3, Amazon's or another."""
    return isinstance(at, Url) and at.scheme == "s3"


def is_url(text: str) -> bool:
    """Whether a text is a URL, and no path."""
    return _URL.match(text) is not None


def location(text: str, whose: str = "a location") -> Location:
    """A path or a URL as somebody wrote it.

    Raises Refused for a URL of another kind, and for one with a query, a fragment or a login.
    """
    kind = _URL.match(text)
    if kind is None:
        return Path(text).expanduser()
    parts = _WHOLE.fullmatch(text)
    scheme = SCHEMES.get(kind[1])
    if (
        parts is None
        or scheme is None
        or ("@" in parts[2] and scheme != "abfss")
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


def _without_login(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", text).partition("?")[0]
