-- How far is each stage behind, and which is the slowest?
-- Only what a run has seen counts: files and messages that no run has listed are not in the log.
SELECT instance, stage, system_lag, slowest, batches_waiting, records_waiting, last_committed_at, max_event_time
FROM onlyonce.lag
ORDER BY system_lag DESC, instance, stage;
