-- of_task --
-- What a session of one of Spark's tasks is, for one transaction: a pooler gives the next one to somebody else. A statement may take as long as its
-- rows need. None of these reads a row, so a transaction may still choose its isolation level.
SET LOCAL lock_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '10min'; SET LOCAL statement_timeout = 0; SET LOCAL timezone = 'UTC';
SET LOCAL application_name = :name
