-- Which windows are open, and which event time would close them?
-- A window closes when the max event time passes its end and the watermark delay of its output.
SELECT w.instance, w.output, w.window_start, w.window_end, w.in_time AS records, w.rows AS rows_written, s.max_event_time
FROM onlyonce.windows w
LEFT JOIN onlyonce.lag s ON s.instance = w.instance AND s.stage = w.output
WHERE w.state = 'open'
ORDER BY w.instance, w.output, w.window_start;
