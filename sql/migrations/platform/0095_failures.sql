-- How often receive has failed at a batch, of the same cause; and the records that were found to be it, which the batch refuses.
CREATE TABLE onlyonce_private.batch_failures (
    lineage  text   NOT NULL,
    batch_id bigint NOT NULL,
    cause    text   NOT NULL,
    times    int    NOT NULL CONSTRAINT batch_failures_times_some CHECK (times > 0),
    refused  jsonb  NOT NULL DEFAULT '[]',
    CONSTRAINT batch_failures_once PRIMARY KEY (lineage, batch_id),
    CONSTRAINT batch_failures_of_a_batch FOREIGN KEY (lineage, batch_id)
        REFERENCES onlyonce_private.batches (lineage, batch_id) ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.batch_failures IS
    'Receive batches that failed, how often in a row of one cause, and the records that were found to be it and are refused since.';
