"""The image is made of what is locked and of nothing else, and each rule notices the mistake that it is for."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.compose import composed
from tests.compose.composed import ROOT
from tests.compose.image import RULES, Image, load

# rule: file, what is there, what the mistake puts in its place
MISTAKES = [
    ("bases_are_pinned", "dockerfile", "3.11.15-slim-bookworm@sha256:", "3.11.15-slim-bookworm #"),
    ("bases_are_pinned", "dockerfile", "FROM eclipse-temurin:17.0.19_10-jre-noble", "FROM openjdk:17.0.2"),
    ("bases_are_pinned", "dockerfile", "FROM base AS packages", "FROM debian AS packages"),
    ("python_and_java_are_ours", "dockerfile", "FROM python:3.11.", "FROM python:3.14."),
    ("python_and_java_are_ours", "dockerfile", "FROM eclipse-temurin:17.", "FROM eclipse-temurin:11."),
    ("environment_is_the_locked_one", "dockerfile", "make env \\\n", "pip install . \\\n"),
    ("environment_is_the_locked_one", "dockerfile", "USER onlyonce", "RUN pip install boto3\nUSER onlyonce"),
    ("environment_is_the_locked_one", "dockerfile", "docker/requirements.lock docker/ivy.xml", "docker/ivy.xml"),
    (
        "environment_is_the_locked_one",
        "dockerfile",
        "USER onlyonce",
        "ADD https://example.org/x.jar /x.jar\nUSER onlyonce",
    ),
    ("code_is_one_layer", "dockerfile", "COPY --from=packages /opt", "COPY --from=code /opt"),
    ("code_is_one_layer", "dockerfile", "ARG IVY_SETTINGS_XML", "COPY onlyonce onlyonce\nARG IVY_SETTINGS_XML"),
    ("sources_are_there", "dockerfile", "COPY dags dags", "COPY dags config dags"),
    ("sources_are_there", "ignore", "!plugins\n", ""),
    ("sources_are_there", "ignore", "!onlyonce\n", "!onlyonce\nonlyonce/local\n"),
    ("secrets_stay_out", "ignore", "\n*\n", "\n"),
    ("secrets_stay_out", "ignore", "!sql\n", "!sql\n!.env\n"),
    ("secrets_stay_out", "ignore", "!docker/ivy.xml\n", "!docker\n"),
    ("secrets_stay_out", "ignore", "!sql\n", "!sql\n!tests\n"),
    ("secrets_stay_out", "dockerfile", "ENV JAVA_HOME", "ARG INDEX_TOKEN\nENV JAVA_HOME"),
    ("runs_as_a_user", "dockerfile", "USER onlyonce\n", ""),
    ("runs_as_a_user", "dockerfile", "USER onlyonce\n", "USER onlyonce\nUSER root\n"),
    ("runs_as_a_user", "dockerfile", " /var/lib/airflow", ""),
    ("runs_as_a_user", "dockerfile", "COPY --from=packages", "COPY --chown=onlyonce --from=packages"),
]


@pytest.mark.parametrize("rule", RULES)
def test_the_image_keeps_every_rule(rule: str) -> None:
    """Nothing is wrong with Dockerfile and .dockerignore by any rule."""
    assert list(RULES[rule](load())) == []


@pytest.mark.parametrize("rule, file, old, new", MISTAKES)
def test_each_mistake_is_noticed(rule: str, file: str, old: str, new: str) -> None:
    """An image with one mistake breaks the rule that is for it."""
    texts = load()._asdict()
    assert old in texts[file]
    texts[file] = texts[file].replace(old, new, 1)
    assert list(RULES[rule](Image(**texts)))


def test_each_rule_has_a_mistake() -> None:
    """No rule is there that was never seen to say no."""
    assert {rule for rule, *_ in MISTAKES} == set(RULES)


def locked(file: str = "requirements.lock") -> dict[str, str]:
    """Return the locked version of each package."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / file).read_text(), re.MULTILINE))


def test_the_image_installs_what_is_tested_without_what_tests_it() -> None:
    """docker/requirements.lock has the versions of requirements.lock, and no package that only `dev` asks for."""
    image, whole = set(locked("docker/requirements.lock").items()), set(locked().items())
    names = {name for name, _ in image}

    assert image < whole, f"run make lock: {sorted(image - whole)}"
    assert not names & {"pytest", "mypy", "ruff", "playwright", "moto", "matplotlib", "mkdocs", "duckdb", "hypothesis"}
    assert {"pyspark", "apache-airflow", "delta-spark", "pyiceberg", "pymysql", "confluent-kafka"} <= names


def test_the_lock_is_within_the_ranges_of_what_is_declared() -> None:
    """What pyproject.toml asks for, in any of its extras, the lock that the image is made from holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        Requirement(line)
        for part in (project["dependencies"], *project["optional-dependencies"].values())
        for line in part
    ]
    others = [one for one in wanted if one.name != project["name"]]
    assert len(others) > 30
    assert [str(one) for one in others if not one.specifier.contains(locked().get(one.name.lower(), "0"))] == []


def test_the_jars_are_of_the_version_that_is_locked() -> None:
    """The Delta jar is the one of the Python package, made for this Spark, and Spark's client has its version."""
    found = locked()
    jar = re.search(r'name="delta-spark_([\d.]+)_2\.13" rev="([\d.]+)"', (ROOT / "docker" / "ivy.xml").read_text())
    assert jar is not None
    assert jar[2] == found["delta-spark"]
    assert found["pyspark"].startswith(f"{jar[1]}.")
    assert found["pyspark-client"] == found["pyspark"]


def test_stand_ins_replace_each_base_of_the_image() -> None:
    """tests/containers/stand_in.yml names the bases of docker/Dockerfile, for each service that runs the image."""
    stand_in = yaml.safe_load((ROOT / "tests" / "containers" / "stand_in.yml").read_text())
    bases = {source.partition(" AS ")[0] for source in load().arguments("FROM") if "@" in source}
    services = {name for name, service in composed.load()["services"].items() if composed.is_ours(service)}

    replaced = {one.partition("=")[0] for one in stand_in["x-bases"]["build"]["additional_contexts"]}
    assert replaced == bases
    assert set(stand_in["services"]) == services | {"postgres"}
