-- Up to which version of `events` its files may have been rewritten (`onlyonce maintain`): whoever wants the rows of those commits asks the table
-- as it is now, and not the files that the commits name.
ALTER TABLE onlyonce_private.pipelines ADD COLUMN events_compacted bigint NOT NULL DEFAULT -1;
COMMENT ON COLUMN onlyonce_private.pipelines.events_compacted IS
    'The files of commits to `events` up to this version may be others by now, and the commits themselves gone from the log of the table; -1: none.';
