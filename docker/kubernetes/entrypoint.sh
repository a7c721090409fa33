#!/bin/sh
# Start a container of the image: `driver` and `executor` are Spark's words in a pod of Kubernetes; any other word is a command, and runs as it is.
set -eu

case "${1:-}" in
driver)
    shift
    exec spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    spark=$("$PYSPARK_PYTHON" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
    # Java's options are numbered from 0 on. Each may contain blanks.
    set --
    while option=$(printenv "SPARK_JAVA_OPT_$#"); do set -- "$@" "$option"; done
    exec "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$spark/conf}:${SPARK_CLASSPATH:-}:$spark/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
