-- older_sessions --
-- The sessions of an incarnation's epochs below one that may still live: the holder of the lock of that name is one. The
-- name begins with the platform's id, since several platforms number their incarnations.
SELECT name, IS_USED_LOCK(name) AS connection FROM onlyonce_sessions
WHERE number = :number AND epoch < :below AND name LIKE :ours

-- add_session --
-- A driver's session, by the name of the lock that it holds. Written in the driver's own SQL: it runs before SQLAlchemy
-- has the session.
INSERT INTO onlyonce_sessions (name, number, epoch) VALUES (%(name)s, %(number)s, %(epoch)s)

-- remove_sessions --
-- Sessions that have ended. By their names: a condition on the epoch would wait for a session that is being added.
DELETE FROM onlyonce_sessions WHERE name IN :names
