"""What a Python worker of Spark's does once."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import gc, weakref
from onlyonce.engine.worker import settle
settle()
frozen = gc.get_freeze_count()
class Made: pass
for number in range(2):
    one = Made(); one.itself = one
    there = weakref.ref(one)
    del one
    settle()
    gc.collect()
    assert there() is None, "what came later is collected as ever"
assert frozen == gc.get_freeze_count() > 1000, "the modules that were there are left out, once"
"""


def test_a_settled_worker_collects_what_came_later_only() -> None:
    """What is there at the first call is never looked at again; garbage of later tasks is, and a second call changes
    nothing."""
    subprocess.run([sys.executable, "-c", LOOK], check=True)
