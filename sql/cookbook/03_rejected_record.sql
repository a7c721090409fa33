-- Why was this record rejected, by which output, and in which window?
-- Set: record, its id as `onlyonce trace` prints it. Unset, it shows the newest thousand rejections.
\if :{?record} \else \set record '%' \endif
SELECT instance, output, reason, window_start, window_end, event_time, record_id, received_as, received_in
FROM onlyonce.rejected
WHERE record_id LIKE :'record'
ORDER BY event_time DESC, record_id LIMIT 1000;
