/** SQL that makes the view of all runs; `@` stands for the schema. */
export const progressView = `
CREATE VIEW @.progress AS
SELECT r.run_id, r.job, r.target, r.mode,
  CASE WHEN f.run_id IS NOT NULL THEN 'complete' WHEN l.later THEN 'abandoned' ELSE 'unfinished' END AS status,
  r.spans_planned, s.spans_committed, r.rows_planned, s.rows_committed, s.rows_rejected, s.rows_filtered,
  round(s.rows_committed / nullif(extract(epoch FROM s.last_commit_at - a.first_started_at), 0))::bigint AS rows_per_second,
  a.attempts, r.planned_at, s.last_commit_at, f.finished_at, e.message AS last_error, e.at AS last_error_at,
  CASE WHEN f.run_id IS NOT NULL THEN 'published'
    WHEN l.later AND (d.kind IS NULL OR d.kind = 'approved') THEN 'abandoned' WHEN d.kind IS NOT NULL THEN d.kind
    WHEN r.staged AND v.outcome = 'hold' THEN 'held' ELSE 'unfinished' END AS state,
  f.publication, d.by AS decided_by, d.at AS decided_at, d.reason
FROM @.runs r
LEFT JOIN @.finishes f USING (run_id)
LEFT JOIN @.verdicts v USING (run_id)
LEFT JOIN @.decisions d USING (run_id)
CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM @.runs n WHERE n.base = r.base AND n.number > r.number) AS later) l
CROSS JOIN LATERAL (
  SELECT count(*) AS spans_committed, coalesce(sum(rows), 0)::bigint AS rows_committed,
    coalesce(sum(rejected), 0)::bigint AS rows_rejected, coalesce(sum(filtered), 0)::bigint AS rows_filtered,
    max(committed_at) AS last_commit_at
  FROM @.spans WHERE spans.run_id = r.run_id) s
CROSS JOIN LATERAL (
  SELECT count(*) AS attempts, min(started_at) AS first_started_at FROM @.attempts WHERE attempts.run_id = r.run_id) a
LEFT JOIN LATERAL (
  SELECT message, at FROM @.errors WHERE errors.run_id = r.run_id ORDER BY at DESC LIMIT 1) e ON true;
COMMENT ON VIEW @.progress IS 'A row for each run: how far it is, how fast, its state, and the last error';
`;
