"""No DAG, but the place where Airflow shows a declaration that is wrong, or names a function that is not there: as the
import error of this file.

The DAGs of the pipelines that are right are in the files next to it, and stay.
"""

from __future__ import annotations

from onlyonce.api import load as declarations

declarations.check_loaded()
