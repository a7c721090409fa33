-- add --
-- The row of a lock. It waits only for a transaction that adds the same row for the first time.
INSERT INTO onlyonce_private.locks (name) VALUES (:name) ON CONFLICT (name) DO NOTHING

-- wait --
-- The lock until this transaction ends.
SELECT name FROM onlyonce_private.locks WHERE name = :name FOR UPDATE

-- if_free --
-- The lock until this transaction ends; no row if another transaction has it.
SELECT name FROM onlyonce_private.locks WHERE name = :name FOR UPDATE SKIP LOCKED

-- holder --
-- Whether the session that took a lock lives, and whether it is this one.
SELECT onlyonce_private.lives(pid, began_at) AS lives, pid = pg_backend_pid() AND onlyonce_private.lives(pid, began_at) AS ours
FROM onlyonce_private.locks WHERE name = :name

-- hold --
-- The lock until this session ends; no row if another session has it. PostgreSQL reads the last version of the row under its lock, so of two
-- sessions one gets it. A server may end sessions that are idle: not this one.
INSERT INTO onlyonce_private.locks AS taken (name, pid, began_at)
SELECT :name, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
ON CONFLICT (name) DO UPDATE SET pid = excluded.pid, began_at = excluded.began_at
WHERE NOT onlyonce_private.lives(taken.pid, taken.began_at)
RETURNING set_config('idle_session_timeout', '0', false)

-- release --
-- Give up a lock that this session took. PostgreSQL may list a session for a moment after its connection is closed.
DELETE FROM onlyonce_private.locks WHERE name = :name AND pid = pg_backend_pid() AND onlyonce_private.lives(pid, began_at)

-- forget --
-- The locks of pipelines and bounded runs that are dropped.
DELETE FROM onlyonce_private.locks l USING unnest(CAST(:instances AS text[])) AS i (instance)
WHERE l.name IN ('catalog/' || i.instance, 'buckets/' || i.instance, 'long_run/' || i.instance) OR starts_with(l.name, 'deliverer/' || i.instance || '/')
