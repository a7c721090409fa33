"""Show a wrong declaration, or a missing function, as the import error of this file in Airflow. This file has no DAG.

The DAGs of the pipelines that are right are in the files next to it, and stay.
"""

from __future__ import annotations

from onlyonce.api import load as declarations

declarations.check_loaded()
