"""Which DAG files the Airflow of `onlyonce up` has."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.local import airflow_server

DECLARED = """
from onlyonce import Delta, Files, Output, Pipeline

PIPELINES = [
    Pipeline(name="shop", source=Files(), schema="id string, at timestamp", record_id=("id",),
             event_time="at",
             outputs=Output(name="rows", transform="shop.transforms:same", sink=Delta())),
]
"""
OF_PROJECT = 'from onlyonce.airflow import dags\n\nglobals().update(dags("shop.pipelines"))\n'


@pytest.mark.parametrize("has_folder", [True, False])
def test_an_installed_package_serves_the_dags_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_folder: bool
) -> None:
    """Those of its folder, with the project's modules; of a file without one, all that it declares."""
    project, package = tmp_path / "project", tmp_path / "project" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(DECLARED)
    (package / "transforms.py").write_text("def same(rows):\n    return rows\n")
    if has_folder:
        (project / "dags").mkdir()
        (project / "dags" / "shop_dags.py").write_text(OF_PROJECT)
    monkeypatch.chdir(project)
    monkeypatch.delenv("ONLYONCE_PIPELINES", raising=False)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(settings, "ROOT", tmp_path / "site-packages")  # as a wheel has it: without a folder `dags`
    monkeypatch.setattr(sys, "path", [*map(str, airflow_server.project_folders()), *sys.path])

    folder = airflow_server.dags_folder(tmp_path / "home" / "airflow")

    assert (folder == project / "dags") == has_folder
    [file] = folder.glob("*.py")
    assert "shop_stream" in runpy.run_path(str(file))
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        monkeypatch.delitem(sys.modules, name)
