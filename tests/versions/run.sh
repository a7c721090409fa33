#!/bin/sh
# Installs onlyonce with the versions of tests/versions/NAME.txt into .versions/NAME, with their jars, and runs there the tests of
# DAGs and page and a sample of Spark. Called by `make test-versions`, which gives UV; IVY_SETTINGS names another repository of jars.
set -eu
name=$1
place=.versions/$name
wanted=tests/versions/$name.txt
"$UV" venv --quiet --allow-existing --python "$(cat .venv/.made/python)" "$place"
"$UV" pip install --quiet --python "$place/bin/python" --editable ".[dev]" --constraint "$wanted"
versions=$("$UV" pip list --python "$place/bin/python" --format freeze | grep -E '^(apache-airflow|apache-airflow-providers-apache-spark|pyspark|delta-spark)==')
spark=$(echo "$versions" | sed -n 's/^pyspark==//p')
delta=$(echo "$versions" | sed -n 's/^delta-spark==//p')
of=${spark%.*}
# The same jars as in docker/ivy.xml, of these versions.
sed -E "s/delta-spark_[0-9.]+_2\.13\" rev=\"[^\"]+/delta-spark_${of}_2.13\" rev=\"$delta/; s/(spark-sql-kafka-0-10_2\.13\" rev=\")[^\"]+/\1$spark/" \
    docker/ivy.xml > "$place/ivy.xml"
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
"$java" -cp "$(echo "$place"/lib/python*/site-packages/pyspark/jars/ivy-*.jar)" org.apache.ivy.Main \
    ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} -ivy "$place/ivy.xml" -cache "$PWD/.venv/ivy" \
    -retrieve "$place/jars/[artifact]-[revision].[ext]" -types jar bundle -sync > "$place/ivy.log" 2>&1 || { tail -n 20 "$place/ivy.log"; exit 1; }
echo "test-versions: $name: $(echo $versions)"
# Airflow's own examples are on by default in some versions.
AIRFLOW__CORE__LOAD_EXAMPLES=False "$place/bin/pytest" -q -p no:cacheprovider $TESTS -m "not slow and not browser"
