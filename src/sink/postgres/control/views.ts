/** SQL that makes the views for people, and for conditions on runs; `@` stands for the schema. */
export const views = `
CREATE VIEW @.verdicts AS
SELECT run_id, document #>> '{verdict,outcome}' AS outcome, document AS verdict, writer, at AS judged_at
FROM @.documents WHERE name = 'verdict' AND version = 1;
COMMENT ON VIEW @.verdicts IS 'A row for each run that checks have judged: publish or hold, and the checks with their values and limits';
CREATE VIEW @.decisions AS
SELECT run_id, document ->> 'kind' AS kind, document ->> 'by' AS by, (document ->> 'at')::timestamptz AS at,
  document ->> 'reason' AS reason, (document ->> 'asBaseline')::boolean AS as_baseline, document ->> 'successor' AS successor
FROM @.documents WHERE name = 'decision' AND version = 1;
COMMENT ON VIEW @.decisions IS 'A row for each run that was approved, discarded or superseded: by whom, when and why, and whether later runs are compared with it';
CREATE VIEW @.errors AS
SELECT d.run_id, e ->> 'writer' AS writer, e ->> 'code' AS code, e ->> 'message' AS message, (e ->> 'at')::timestamptz AS at
FROM @.documents d CROSS JOIN LATERAL json_array_elements(document -> 'errors') AS e
WHERE name = 'errors' AND NOT EXISTS (
  SELECT FROM @.documents n WHERE n.run_id = d.run_id AND n.name = 'errors' AND n.version > d.version);
COMMENT ON VIEW @.errors IS 'The last errors of the attempts of each run, a row each';
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
