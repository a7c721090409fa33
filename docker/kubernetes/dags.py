"""A DAG file for Kubernetes: every driver is a pod, and so is each of its executors.

Airflow's workers have the same image.

The connection `spark_kubernetes`, as Airflow reads it from AIRFLOW_CONN_SPARK_KUBERNETES:

    {"conn_type": "spark", "host": "k8s://https://kubernetes.default.svc:443", "extra": {"deploy-mode": "cluster", "namespace": "onlyonce"}}
"""

from onlyonce.airflow import dags

IMAGE = "registry.example/onlyonce:1"
HERE = "/opt/onlyonce/docker/kubernetes"

globals().update(
    dags(
        "jobs.pipelines",
        spark={
            "conn_id": "spark_kubernetes",
            "conf": {
                "spark.kubernetes.container.image": IMAGE,
                "spark.kubernetes.driver.podTemplateFile": f"{HERE}/driver.yaml",
                "spark.kubernetes.executor.podTemplateFile": f"{HERE}/executor.yaml",
                "spark.kubernetes.authenticate.driver.serviceAccountName": "onlyonce-driver",
                "spark.kubernetes.authenticate.executor.serviceAccountName": "onlyonce-executor",
                "spark.driver.memory": "2g",
                "spark.executor.instances": "4",
                "spark.executor.cores": "2",
                "spark.executor.memory": "4g",
                "spark.executor.memoryOverhead": "2g",  # Python, and ONLYONCE_STATE_MEMORY
            },
            "env_vars": {
                "ONLYONCE_HOME": "/tmp/onlyonce",  # logs, and files that can be made again
                "ONLYONCE_DATA": "s3://my-bucket/onlyonce",
                "AWS_REGION": "eu-central-1",
            },
        },
    )
)
