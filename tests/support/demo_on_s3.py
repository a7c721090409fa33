"""`make demo STORE=s3`: the demo with its data in an S3 of this machine, the one of the tests, which Go builds once.

Home and store are a folder of their own, so the demo that has its data on the disk stays as it is. The store is up for as long as the demo is.
"""

from __future__ import annotations

import sys

from onlyonce import environment, settings
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
        with environment.within({**server.environment, "ONLYONCE_DATA": f"s3://{BUCKET}/lake"}):
            app(["demo", *words])


if __name__ == "__main__":
    main(sys.argv[1:])
