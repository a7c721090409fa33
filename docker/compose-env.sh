#!/bin/sh
# Make the file of secrets that docker-compose.yml reads: each generated here, readable by its owner only.
#
#     sh docker/compose-env.sh [FILE]     FILE is .env unless named; `make compose-env` calls it
#
# An existing file is never changed: its passwords are in the database. It is a shell script, since a machine that runs the
# containers needs no Python of its own.
set -eu
umask 077

file=${1:-.env}
hex() { od -An -v -N "$1" -tx1 /dev/urandom | tr -d ' \n'; }
fernet() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '\n'; }

lines() {
	echo "# Secrets of docker-compose.yml. They belong to the data: keep a copy with each backup."
	echo "# Passwords stand in URLs: letters and digits only."
	echo "ONLYONCE_ADMIN_PASSWORD=$(hex 24)"
	echo "ONLYONCE_WRITER_PASSWORD=$(hex 24)"
	echo "ONLYONCE_READER_PASSWORD=$(hex 24)"
	echo "ONLYONCE_AIRFLOW_PASSWORD=$(hex 12)"
	echo "SPARK_SECRET=$(hex 32)"
	echo "AIRFLOW_DATABASE_PASSWORD=$(hex 24)"
	echo "AIRFLOW_FERNET_KEY=$(fernet)"
	echo "AIRFLOW_API_SECRET=$(hex 32)"
	echo "AIRFLOW_JWT_SECRET=$(hex 64)"
}

made=$(lines)
if [ ! -e "$file" ]; then
	unfinished="$file.$$"
	trap 'rm -f "$unfinished"' EXIT
	printf '%s\n' "$made" >"$unfinished"
	# A link fails if the name is taken: if two calls run at once, the first one's secrets stay.
	if ln "$unfinished" "$file" 2>/dev/null; then
		echo "$file: made, with new secrets; user of the UI: admin, password: ONLYONCE_AIRFLOW_PASSWORD in it"
		exit 0
	fi
fi

missing=""
for name in $(printf '%s\n' "$made" | sed -n 's/=.*//p' | grep -v '^#'); do
	grep -q "^$name=." "$file" || missing="$missing $name"
done
if [ -n "$missing" ]; then
	echo "$file is there and was not changed, but it lacks:$missing. Add a line NAME=secret for each." >&2
	exit 1
fi
echo "$file is there and was not changed"
