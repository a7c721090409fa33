-- Outputs, their state and what they send and write as files.

CREATE OR REPLACE VIEW onlyonce.outputs AS
WITH each AS (
    SELECT p.pipeline, l.instance, o.key AS output, o.value->>'from_output' AS reads, l.query
    FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT x.declaration_hash FROM onlyonce_private.batches x WHERE x.incarnation = l.incarnation ORDER BY x.batch_id DESC LIMIT 1) last
    JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (l.instance, l.query, last.declaration_hash)
    CROSS JOIN LATERAL jsonb_each(d.parts->'outputs') o
    WHERE l.query <> 'receive' AND l.state <> 'closed' AND l.kind = 'stream'),
behind AS (SELECT instance, stage, batches_waiting FROM onlyonce.lag)
SELECT e.pipeline, e.instance, e.output, e.reads, e.query,
       greatest(mine.batches_waiting - coalesce(theirs.batches_waiting, 0), 0) AS batches_behind,
       written.window_start AS last_window_start, written.window_end AS last_window_end, written.committed_at AS last_written_at
FROM each e
LEFT JOIN each before ON (before.instance, before.output) = (e.instance, e.reads)
LEFT JOIN behind mine ON (mine.instance, mine.stage) = (e.instance, e.query)
LEFT JOIN behind theirs ON (theirs.instance, theirs.stage) = (before.instance, before.query)
LEFT JOIN LATERAL (
    SELECT n.window_start, n.window_end, n.committed_at FROM onlyonce_private.panes n
    WHERE n.instance = e.instance AND n.output = e.output AND n.final AND n.window_start IS NOT NULL
    ORDER BY n.window_start DESC, n.window_end DESC LIMIT 1) written ON true;
COMMENT ON VIEW onlyonce.outputs IS 'What each output reads, and how far it is behind that: chains, outputs made from others, several results of one function.';
COMMENT ON COLUMN onlyonce.outputs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.outputs.instance IS 'the stream of the pipeline, or one of its bounded runs that has not finished';
COMMENT ON COLUMN onlyonce.outputs.output IS 'the output, as its last batch was declared';
COMMENT ON COLUMN onlyonce.outputs.reads IS 'events, or the output whose windows or rows it is made from';
COMMENT ON COLUMN onlyonce.outputs.query IS 'the query that writes it: its own, or the query of the output from whose rows it is made in the same batch';
COMMENT ON COLUMN onlyonce.outputs.batches_behind IS 'batches of receive that its input (reads) has and this output still lacks; 0: it lacks none';
COMMENT ON COLUMN onlyonce.outputs.last_window_start IS 'the newest closed window that it has written; NULL: it has none';
COMMENT ON COLUMN onlyonce.outputs.last_window_end IS 'its end';
COMMENT ON COLUMN onlyonce.outputs.last_written_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.state AS
SELECT p.pipeline, l.instance, l.query, s.incarnation, s.batch_id AS batch,
       CASE s.kind WHEN 'stateStoreSave' THEN 'windows' WHEN 'sessionWindowStateStoreSaveExec' THEN 'sessions' WHEN 'symmetricHashJoin' THEN 'join'
                   WHEN 'transformWithStateInPandasExec' THEN 'processor' ELSE s.kind END AS kind,
       CASE WHEN NOT EXISTS (
           SELECT 1 FROM onlyonce_private.declarations d
           WHERE (d.instance, d.query) = (l.instance, l.query) AND d.parts->'outputs'->l.query->>'join' LIKE '%kind=%') THEN s.rows END AS rows,
       s.rows_in, s.rows_out, s.timers_set, s.timers_ended, s.disk_bytes, s.memory_bytes, s.seen_at
FROM onlyonce_private.states s JOIN onlyonce_private.incarnations l USING (incarnation) JOIN onlyonce_private.pipelines p USING (instance)
WHERE l.state <> 'closed';
COMMENT ON VIEW onlyonce.state IS 'The state that outputs keep in Spark: open windows, rows of a join that wait for a partner, what a processor keeps. As Spark reported it with the last batch.';
COMMENT ON COLUMN onlyonce.state.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.state.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.state.query IS 'the output';
COMMENT ON COLUMN onlyonce.state.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.state.batch IS 'the batch that reported it';
COMMENT ON COLUMN onlyonce.state.kind IS 'windows, sessions, join, processor; else Spark''s name';
COMMENT ON COLUMN onlyonce.state.rows IS 'inner join: the rows of both sides that may still find a partner; NULL: of outer joins and other kinds Spark does not count all that goes, and of a join not any more once a driver was killed right behind a batch';
COMMENT ON COLUMN onlyonce.state.rows_in IS 'rows of state that the batch put in or changed';
COMMENT ON COLUMN onlyonce.state.rows_out IS 'rows of state that it took out';
COMMENT ON COLUMN onlyonce.state.timers_set IS 'processor: timers that it set in the batch';
COMMENT ON COLUMN onlyonce.state.timers_ended IS 'processor: timers that fired or were deleted in the batch';
COMMENT ON COLUMN onlyonce.state.disk_bytes IS 'RocksDB: files of state on the disks of executors, without the changes since they were last written';
COMMENT ON COLUMN onlyonce.state.memory_bytes IS 'what the stores hold in memory, blocks that RocksDB shares included';
COMMENT ON COLUMN onlyonce.state.seen_at IS 'when that was reported';

CREATE OR REPLACE VIEW onlyonce.output_files AS
SELECT p.pipeline, f.instance, f.output, f.window_start, f.window_end, f.generation, f.pane, f.shard, f.shards,
       CASE WHEN b.state = 'replaced' THEN 'given up' WHEN f.pane IS NULL THEN 'begun'
            WHEN f.finalized_at IS NULL THEN 'waiting' WHEN f.pane < newest.pane THEN 'replaced' ELSE 'final' END AS state,
       f.place, CASE WHEN f.finalized_at IS NOT NULL THEN f.name END AS name, f.rows, f.bytes, f.checksum,
       f.incarnation || '/' || f.batch_id || '/' || f.output || '/' || f.partition AS unique_id, f.incarnation, f.batch_id AS batch,
       f.temporary, f.recorded_at, f.finalized_at
FROM onlyonce_private.files f JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.backfills b ON (b.incarnation, b.batch_id) = (f.incarnation, f.batch_id)
LEFT JOIN LATERAL (
    SELECT max(x.pane) AS pane FROM onlyonce_private.files x
    WHERE x.pane IS NOT NULL AND x.finalized_at IS NOT NULL AND (x.instance, x.output) = (f.instance, f.output)
      AND (x.window_start, x.window_end) = (f.window_start, f.window_end)) newest ON true;
COMMENT ON VIEW onlyonce.output_files IS 'Each file of a sharded output that counts: its window, pane and shard, what is in it, and whether it has its final name. A file that is not in here counts for no reader.';
COMMENT ON COLUMN onlyonce.output_files.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.output_files.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.output_files.output IS 'the output';
COMMENT ON COLUMN onlyonce.output_files.window_start IS 'the window; none for an output without windows';
COMMENT ON COLUMN onlyonce.output_files.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.output_files.generation IS '0: written by the stream; then one for each backfill';
COMMENT ON COLUMN onlyonce.output_files.pane IS 'counts the panes of the window; none while its batch is not committed. A window is all files of its newest pane';
COMMENT ON COLUMN onlyonce.output_files.shard IS 'which of the shards, from 0';
COMMENT ON COLUMN onlyonce.output_files.shards IS 'how many each window has';
COMMENT ON COLUMN onlyonce.output_files.state IS 'begun: its batch is not committed. waiting: for finalize. final: to be read. replaced: final, but a later pane has all rows of the window. given up: of a backfill that was begun again';
COMMENT ON COLUMN onlyonce.output_files.place IS 'the folder or URL; one that is neither absolute nor a URL is in the folder files of the platform';
COMMENT ON COLUMN onlyonce.output_files.name IS 'the final name in that place, once it has it; in an object store the name is in the manifest''s list, and the object is the temporary';
COMMENT ON COLUMN onlyonce.output_files.rows IS 'how many rows';
COMMENT ON COLUMN onlyonce.output_files.bytes IS 'its size';
COMMENT ON COLUMN onlyonce.output_files.checksum IS 'sha256 of its bytes, in hexadecimal';
COMMENT ON COLUMN onlyonce.output_files.unique_id IS 'the unit that it was committed with';
COMMENT ON COLUMN onlyonce.output_files.incarnation IS 'instance/query/ordinal; of a backfill instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.output_files.batch IS 'the batch that wrote it';
COMMENT ON COLUMN onlyonce.output_files.temporary IS 'the name under which the winning attempt wrote it';
COMMENT ON COLUMN onlyonce.output_files.recorded_at IS 'when its unit committed';
COMMENT ON COLUMN onlyonce.output_files.finalized_at IS 'when it got its final name';

CREATE OR REPLACE VIEW onlyonce.outbox AS
SELECT p.pipeline, o.instance, o.output, o.unit, o.seq, o.key, o.state, o.attempts, o.unanswered, o.uncertain, o.answer,
       o.payload, o.unit || '/' || o.seq || '@' || o.checkpoint_id AS idempotency_key,
       CAST(md5(o.unit || '/' || o.seq || '@' || o.checkpoint_id) AS uuid) AS insert_id,
       o.committed_at, o.due_at, o.begun_at, o.answered_at, o.stream
FROM onlyonce_private.outbox o JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.outbox IS 'Each row for a webhook or BigQuery, with the state of its delivery. Delivered rows stay as long as units do.';
COMMENT ON COLUMN onlyonce.outbox.stream IS 'from before the first row of its unit was sent: the write stream of BigQuery that the unit goes to (BigQueryStream), or the topic that gets its name (KafkaSink)';
COMMENT ON COLUMN onlyonce.outbox.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.outbox.instance IS 'the stream of the pipeline, or one of its bounded runs, whose rows are sent only when it is named';
COMMENT ON COLUMN onlyonce.outbox.output IS 'the output';
COMMENT ON COLUMN onlyonce.outbox.unit IS 'the unit that committed it: unique_id of commits';
COMMENT ON COLUMN onlyonce.outbox.seq IS 'its number in the unit';
COMMENT ON COLUMN onlyonce.outbox.key IS 'rows of one key are sent in order. BigQuery: none';
COMMENT ON COLUMN onlyonce.outbox.state IS 'held (until its backfill has ended), waiting, sending (an attempt is begun), delivered, dead (given up: onlyonce deliver --retry-dead), invalid (the server rejects it)';
COMMENT ON COLUMN onlyonce.outbox.attempts IS 'how often it was sent, or was about to be; starts again with --retry-dead';
COMMENT ON COLUMN onlyonce.outbox.unanswered IS 'how many attempts had no answer that says whether the target has it';
COMMENT ON COLUMN onlyonce.outbox.uncertain IS 'the target may have it twice: sent again after an answer was lost, when it may have forgotten the key';
COMMENT ON COLUMN onlyonce.outbox.answer IS 'what came back last';
COMMENT ON COLUMN onlyonce.outbox.payload IS 'what is sent, as JSON';
COMMENT ON COLUMN onlyonce.outbox.idempotency_key IS 'a webhook''s key: unit, number, and an id of the incarnation. The same at each attempt';
COMMENT ON COLUMN onlyonce.outbox.insert_id IS 'BigQuery''s insert id: 128 bits of the key. The same at each attempt';
COMMENT ON COLUMN onlyonce.outbox.committed_at IS 'when it was written, with its unit; of a backfill when that had ended';
COMMENT ON COLUMN onlyonce.outbox.due_at IS 'not sent before; null: immediately';
COMMENT ON COLUMN onlyonce.outbox.begun_at IS 'when the last attempt began';
COMMENT ON COLUMN onlyonce.outbox.answered_at IS 'when its answer was recorded';
