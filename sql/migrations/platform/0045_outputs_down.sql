-- Which outputs of a long run stand still, and by what: the others stay up beside them.
ALTER TABLE onlyonce_private.long_runs ADD COLUMN down jsonb NOT NULL DEFAULT '{}';
