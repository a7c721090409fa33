"""A person who has taken over one of compose's services."""

from __future__ import annotations

from tests.compose import composed, rules
from tests.security.statements import states


def holders(secret: str) -> set[str]:
    """Return the services whose options have a variable of `.env`."""
    return {name for name, service in composed.load()["services"].items() if f"${{{secret}" in str(service)}


@states(
    "Only `setup` and the scheduler (tasks run in it) have the writer's password;",
    "Airflow's API server, which shows the page, its triggerer and its DAG processor have the reader's.",
)
def test_few_services_have_the_writers_password() -> None:
    """Neither by a URL nor by a connection of Airflow. Each secret has these holders, and no other."""
    tasks, airflow = (
        {"setup", "airflow-scheduler"},
        {name for name in composed.load()["services"] if name.startswith("airflow-")},
    )

    assert {secret: holders(secret) for secret in composed.written_by_compose_env()} == {
        "ONLYONCE_ADMIN_PASSWORD": {"postgres", "setup"},
        "ONLYONCE_WRITER_PASSWORD": tasks,
        "ONLYONCE_READER_PASSWORD": {"setup", *airflow},
        "AIRFLOW_DATABASE_PASSWORD": {"setup", *airflow},
        "ONLYONCE_AIRFLOW_PASSWORD": tasks,
        "AIRFLOW_FERNET_KEY": {"setup", *airflow},
        "AIRFLOW_API_SECRET": {"setup", *airflow},
        "AIRFLOW_JWT_SECRET": {"setup", *airflow},
        "SPARK_SECRET": set(),  # in a file, see test_spark_ports
    }
    assert len(airflow) == 4


@states(
    "No service runs as root, and none keeps a capability.",
    "Ports are open on 127.0.0.1 only; if you open one to a network, put TLS before it.",
)
def test_services_have_no_privileges() -> None:
    """Nor can a process gain any, and no port is open to another machine."""
    for name, service in composed.load()["services"].items():
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert service["user"] not in ("root", "0"), name
        assert all(port[0] == "127.0.0.1" for port in composed.published(service)), name


@states("The root file system of each service is read-only, except where Spark's secret is put into it, and Kafka's.")
def test_root_file_systems_are_read_only() -> None:
    """The scheduler, Spark's master and its workers have the secret; no other service does."""
    services = composed.load()["services"]

    assert list(rules.root_is_read_only(composed.load())) == []
    assert {name for name, service in services.items() if not service.get("read_only")} == {
        "kafka",
        "airflow-scheduler",
        "spark-master",
        "spark-worker",
    }
    assert {name for name, service in services.items() if service.get("configs")} == {
        "airflow-scheduler",
        "spark-master",
        "spark-worker",
    }
