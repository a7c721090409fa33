"""Work in a Python process of its own, which has imported nothing of the test session's."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import pickle, sys
answer, sys.stdout = sys.stdout.buffer, sys.stderr
work, given = pickle.load(sys.stdin.buffer)
answer.write(pickle.dumps(work(*given)))
"""
T = TypeVar("T")


def done_apart(work: Callable[..., T], *given: object) -> T:
    """What a function of a module gives there. Raises CalledProcessError when it fails, or is killed."""
    asked = pickle.dumps((work, given))
    done = subprocess.run([sys.executable, "-c", RUN], input=asked, stdout=subprocess.PIPE, cwd=ROOT, check=True)
    answer: T = pickle.loads(done.stdout)
    return answer
