-- The views that people query: a versioned interface. The tables behind them are private and may change.
-- A view is replaced in place, so that a team's own views on it and its grants stay. So columns are only added, at the end; a change that
-- PostgreSQL can't make in place is refused while anything depends on the view (`onlyonce.database.migrate`).
CREATE SCHEMA IF NOT EXISTS onlyonce;
COMMENT ON SCHEMA onlyonce IS 'onlyonce: what was read, what became of it, what is committed. Views, and two functions for the reader.';
