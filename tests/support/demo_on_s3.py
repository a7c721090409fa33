"""`make demo STORE=s3`: the demo with its data in an S3 of this machine, the one of the tests, which Go builds once.

Home and store are a folder of their own, so the demo that has its data on the disk stays as it is. The store is up for
as long as the demo is; a file in the home leads other shells to it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from onlyonce import console, environment, settings
from onlyonce.cli import app
from tests.support import s3

HOME = settings.ROOT / ".onlyonce-s3"
BUCKET = "demo"


def main(words: list[str]) -> None:
    """Start the store, then the demo. What it has is kept in the home, for a demo that goes on."""
    environment.set_missing("ONLYONCE_HOME", str(HOME))
    with s3.versitygw(settings.home() / "s3") as server:
        assert server.buckets is not None
        (server.buckets / BUCKET).mkdir(exist_ok=True)
        given = {**server.environment, "ONLYONCE_DATA": f"s3://{BUCKET}/lake"}
        lead({**given, "ONLYONCE_HOME": str(settings.home())})
        with environment.within(given):
            app(["demo", *words])


def lead(given: Mapping[str, str]) -> None:
    """Write the variables down that lead another shell to the store, and say so."""
    file = settings.home() / "environment"
    file.touch(mode=0o600)
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in given.items()))
    console.console().print(
        f"The store is up for as long as this demo. So that commands of another shell reach it: [bold]. {file}[/bold]",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
