"""Gives Airflow a folder of this process's own: imported before anything imports Airflow.

A worker of pytest inherits the environment of the process that started it, and so the folder that this has made: two of
them would share one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "AIRFLOW_HOME" not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="onlyonce-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
