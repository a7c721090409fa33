-- register --
-- The first pipeline that pulls from a subscription owns it for good.
INSERT INTO onlyonce_private.subscriptions (subscription, pipeline) VALUES (:subscription, :pipeline)
ON CONFLICT ON CONSTRAINT subscriptions_of_one_pipeline DO NOTHING

-- owner --
-- The owner of a subscription.
SELECT pipeline FROM onlyonce_private.subscriptions WHERE subscription = :subscription

-- of_pipeline --
-- The subscriptions that a pipeline pulls from.
SELECT subscription FROM onlyonce_private.subscriptions WHERE pipeline = :pipeline ORDER BY 1

-- newest_bucket --
-- The bucket of the newest receive batch: what is listed from now on has no lower one. By the last batch of each incarnation,
-- since ingestion time never moves back.
SELECT coalesce(max(last.bucket), 0) AS bucket
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (SELECT b.bucket FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation
                    ORDER BY b.batch_id DESC LIMIT 1) last
WHERE l.instance = :pipeline AND l.query = 'receive'

-- note --
-- The messages of a file that is about to be written. Again with the same path: the answer to a COMMIT was lost.
INSERT INTO onlyonce_private.unacknowledged (path, subscription, pipeline, bucket, message_ids, lapses_at)
VALUES (:path, :subscription, :pipeline, :bucket, :message_ids,
        clock_timestamp() + make_interval(secs => :retention))
ON CONFLICT ON CONSTRAINT unacknowledged_once DO NOTHING

-- lock --
-- The files that hold some of these messages, in one order, so that two pullers don't wait for each other.
SELECT path FROM onlyonce_private.unacknowledged
WHERE subscription = :subscription AND message_ids && CAST(:message_ids AS text[])
ORDER BY path FOR UPDATE

-- settle_whole --
-- Files whose messages are now all acknowledged.
DELETE FROM onlyonce_private.unacknowledged
WHERE subscription = :subscription AND message_ids <@ CAST(:message_ids AS text[])

-- settle_some --
-- Files with other messages that are still open.
UPDATE onlyonce_private.unacknowledged
SET message_ids = ARRAY(SELECT unnest(message_ids) EXCEPT SELECT unnest(CAST(:message_ids AS text[])))
WHERE subscription = :subscription AND message_ids && CAST(:message_ids AS text[])

-- forget_lapsed --
-- Messages that the subscription itself has dropped.
DELETE FROM onlyonce_private.unacknowledged WHERE subscription = :subscription AND lapses_at <= clock_timestamp()

-- open --
-- How many pulled messages are not known to be acknowledged.
SELECT coalesce(sum(cardinality(message_ids)), 0) AS messages
FROM onlyonce_private.unacknowledged WHERE subscription = :subscription
