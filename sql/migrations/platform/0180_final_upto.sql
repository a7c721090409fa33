-- Up to which batch all windows that a life of an output has met in time are final: a new life does not begin before that (`onlyonce lineage new`,
-- `onlyonce maintain`), and nobody looks at each window of years to know it. The hourly collection moves it on.
ALTER TABLE onlyonce_private.sums ADD COLUMN final_upto bigint NOT NULL DEFAULT -1;
COMMENT ON COLUMN onlyonce_private.sums.final_upto IS
    'All windows of which batches up to this one met rows in time are final. It never moves back: a window stays final, and a committed batch meets no other.';
