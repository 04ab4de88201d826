CREATE SCHEMA "infer_batch";
CREATE TABLE infer_batch.version ("version" integer PRIMARY KEY, "made_at" timestamptz NOT NULL DEFAULT now(), "made_by" text NOT NULL);
COMMENT ON TABLE infer_batch.version IS 'Which layout these tables have';
COMMENT ON COLUMN infer_batch.version."version" IS 'of this layout; the largest counts';
COMMENT ON COLUMN infer_batch.version."made_at" IS 'when';
COMMENT ON COLUMN infer_batch.version."made_by" IS 'program that made it';
CREATE TABLE infer_batch.runs ("run_id" text PRIMARY KEY, "base" text NOT NULL, "number" integer NOT NULL, "plan_id" text NOT NULL, "job" text NOT NULL, "target" text NOT NULL, "mode" text NOT NULL, "rows_planned" bigint NOT NULL, "spans_planned" integer NOT NULL, "plan" text NOT NULL, "planned_at" timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (run_id, plan_id), UNIQUE (base, number));
COMMENT ON TABLE infer_batch.runs IS 'A row for each run: its plan, which the first attempt wrote and every other one takes up';
COMMENT ON COLUMN infer_batch.runs."run_id" IS 'job name and digest of its params; -r2 and so on for new runs';
COMMENT ON COLUMN infer_batch.runs."base" IS 'run_id of the first of the runs of this job and these params';
COMMENT ON COLUMN infer_batch.runs."number" IS 'which of them, from 1: --new-run opens the next one';
COMMENT ON COLUMN infer_batch.runs."plan_id" IS 'sha256 of the plan''s text, in hex';
COMMENT ON COLUMN infer_batch.runs."job" IS 'name in the job spec';
COMMENT ON COLUMN infer_batch.runs."target" IS 'schema and table of the predictions';
COMMENT ON COLUMN infer_batch.runs."mode" IS 'append, upsert or replace';
COMMENT ON COLUMN infer_batch.runs."rows_planned" IS 'input rows';
COMMENT ON COLUMN infer_batch.runs."spans_planned" IS 'spans that they are committed in';
COMMENT ON COLUMN infer_batch.runs."plan" IS 'the plan, JSON';
COMMENT ON COLUMN infer_batch.runs."planned_at" IS 'when the plan was stored';
CREATE TABLE infer_batch.attempts ("run_id" text NOT NULL, "writer" text NOT NULL, "program" text NOT NULL, "started_at" timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (run_id, writer));
COMMENT ON TABLE infer_batch.attempts IS 'A row for each process that worked on a run';
COMMENT ON COLUMN infer_batch.attempts."run_id" IS 'the run';
COMMENT ON COLUMN infer_batch.attempts."writer" IS 'host, process and a random number: names the attempt';
COMMENT ON COLUMN infer_batch.attempts."program" IS 'name and version';
COMMENT ON COLUMN infer_batch.attempts."started_at" IS 'when it was ready to score';
CREATE TABLE infer_batch.spans ("run_id" text NOT NULL, "span" integer NOT NULL, "plan_id" text NOT NULL, "row_start" bigint NOT NULL, "row_end" bigint NOT NULL, "rows" bigint NOT NULL, "rejected" bigint NOT NULL, "filtered" bigint NOT NULL, "writer" text NOT NULL, "worker" integer NOT NULL, "workers" integer NOT NULL, "program" text NOT NULL, "provider" text NOT NULL, "batch_size" integer NOT NULL, "on_bad_row" text NOT NULL, "table_oid" oid NOT NULL, "table_files" text NOT NULL, "committed_at" timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (run_id, span), FOREIGN KEY (run_id, plan_id) REFERENCES infer_batch.runs (run_id, plan_id), CHECK (rows + rejected + filtered = row_end - row_start));
COMMENT ON TABLE infer_batch.spans IS 'A row for each committed span, inserted by the transaction that inserted the span''s rows';
COMMENT ON COLUMN infer_batch.spans."run_id" IS 'the run';
COMMENT ON COLUMN infer_batch.spans."span" IS 'number of the span, from 0';
COMMENT ON COLUMN infer_batch.spans."plan_id" IS 'the plan that it was scored by';
COMMENT ON COLUMN infer_batch.spans."row_start" IS 'first row of the run in this span, from 0';
COMMENT ON COLUMN infer_batch.spans."row_end" IS 'the row after its last';
COMMENT ON COLUMN infer_batch.spans."rows" IS 'predictions that this span gave';
COMMENT ON COLUMN infer_batch.spans."rejected" IS 'rows set aside in the table of rejects';
COMMENT ON COLUMN infer_batch.spans."filtered" IS 'rows that input.where left out';
COMMENT ON COLUMN infer_batch.spans."writer" IS 'the attempt that committed it';
COMMENT ON COLUMN infer_batch.spans."worker" IS 'which of several workers that was, from 0';
COMMENT ON COLUMN infer_batch.spans."workers" IS 'how many they were';
COMMENT ON COLUMN infer_batch.spans."program" IS 'name and version';
COMMENT ON COLUMN infer_batch.spans."provider" IS 'what the model ran on';
COMMENT ON COLUMN infer_batch.spans."batch_size" IS 'rows that it was given at once';
COMMENT ON COLUMN infer_batch.spans."on_bad_row" IS 'fail or reject';
COMMENT ON COLUMN infer_batch.spans."table_oid" IS 'pg_class.oid of the table that took the rows: one of its name may be another by now';
COMMENT ON COLUMN infer_batch.spans."table_files" IS 'digest of the names of that table''s files: TRUNCATE gives it others';
COMMENT ON COLUMN infer_batch.spans."committed_at" IS 'just before its commit';
CREATE TABLE infer_batch.rejects ("run_id" text NOT NULL, "span" integer NOT NULL, "n" integer NOT NULL, "shard" text NOT NULL, "row" bigint NOT NULL, "column_name" text, "reason" text NOT NULL, "value" text, "columns" jsonb NOT NULL, PRIMARY KEY (run_id, span, n));
COMMENT ON TABLE infer_batch.rejects IS 'A row for each input row that could not be scored or stored';
COMMENT ON COLUMN infer_batch.rejects."run_id" IS 'the run';
COMMENT ON COLUMN infer_batch.rejects."span" IS 'the span that would have held it';
COMMENT ON COLUMN infer_batch.rejects."n" IS 'its place among the rejects of the span, from 0';
COMMENT ON COLUMN infer_batch.rejects."shard" IS 'the file it is in';
COMMENT ON COLUMN infer_batch.rejects."row" IS 'its number in that file, from 0';
COMMENT ON COLUMN infer_batch.rejects."column_name" IS 'the column at fault; NULL where the row as a whole is';
COMMENT ON COLUMN infer_batch.rejects."reason" IS 'null, not_finite, does_not_fit, too_long, expression_failed, prediction_not_finite, model_failed, target_cannot_hold';
COMMENT ON COLUMN infer_batch.rejects."value" IS 'what was found; NULL for NULL. A character with code 0 is shown as U+2400';
COMMENT ON COLUMN infer_batch.rejects."columns" IS 'output.columns of the row, as text';
CREATE TABLE infer_batch.finishes ("run_id" text PRIMARY KEY, "writer" text NOT NULL, "finished_at" timestamptz NOT NULL DEFAULT clock_timestamp());
COMMENT ON TABLE infer_batch.finishes IS 'A row for each run that is complete';
COMMENT ON COLUMN infer_batch.finishes."run_id" IS 'the run';
COMMENT ON COLUMN infer_batch.finishes."writer" IS 'the attempt that finished it';
COMMENT ON COLUMN infer_batch.finishes."finished_at" IS 'when';
CREATE TABLE infer_batch.errors ("run_id" text NOT NULL, "writer" text NOT NULL, "code" text NOT NULL, "message" text NOT NULL, "at" timestamptz NOT NULL DEFAULT clock_timestamp());
COMMENT ON TABLE infer_batch.errors IS 'A row for each attempt that ended with an error it could still tell';
COMMENT ON COLUMN infer_batch.errors."run_id" IS 'the run';
COMMENT ON COLUMN infer_batch.errors."writer" IS 'the attempt';
COMMENT ON COLUMN infer_batch.errors."code" IS 'name of the error';
COMMENT ON COLUMN infer_batch.errors."message" IS 'its text';
COMMENT ON COLUMN infer_batch.errors."at" IS 'when';
CREATE TABLE infer_batch.swaps ("n" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "target" text NOT NULL, "run_id" text NOT NULL, "kept" text, "action" text NOT NULL, "table_oid" oid NOT NULL, "at" timestamptz NOT NULL DEFAULT clock_timestamp());
COMMENT ON TABLE infer_batch.swaps IS 'A row for each time that a table was swapped: mode replace, and its rollback';
COMMENT ON COLUMN infer_batch.swaps."n" IS 'in order';
COMMENT ON COLUMN infer_batch.swaps."target" IS 'schema and table of the predictions';
COMMENT ON COLUMN infer_batch.swaps."run_id" IS 'the run whose rows are in the target now';
COMMENT ON COLUMN infer_batch.swaps."kept" IS 'the table that holds the rows that were there before; NULL: none is kept';
COMMENT ON COLUMN infer_batch.swaps."action" IS 'replace or rollback';
COMMENT ON COLUMN infer_batch.swaps."table_oid" IS 'pg_class.oid of the target since then';
COMMENT ON COLUMN infer_batch.swaps."at" IS 'when';
CREATE VIEW infer_batch.progress AS
SELECT r.run_id, r.job, r.target, r.mode,
  CASE WHEN f.run_id IS NOT NULL THEN 'complete'
    WHEN EXISTS (SELECT 1 FROM infer_batch.runs l WHERE l.base = r.base AND l.number > r.number) THEN 'given_up'
    ELSE 'unfinished' END AS status,
  r.spans_planned, s.spans_committed, r.rows_planned, s.rows_committed, s.rows_rejected, s.rows_filtered,
  round(s.rows_committed / nullif(extract(epoch FROM s.last_commit_at - a.first_started_at), 0))::bigint AS rows_per_second,
  a.attempts, r.planned_at, s.last_commit_at, f.finished_at, e.message AS last_error, e.at AS last_error_at
FROM infer_batch.runs r
LEFT JOIN infer_batch.finishes f USING (run_id)
CROSS JOIN LATERAL (
  SELECT count(*) AS spans_committed, coalesce(sum(rows), 0)::bigint AS rows_committed,
    coalesce(sum(rejected), 0)::bigint AS rows_rejected, coalesce(sum(filtered), 0)::bigint AS rows_filtered,
    max(committed_at) AS last_commit_at
  FROM infer_batch.spans WHERE spans.run_id = r.run_id) s
CROSS JOIN LATERAL (
  SELECT count(*) AS attempts, min(started_at) AS first_started_at FROM infer_batch.attempts WHERE attempts.run_id = r.run_id) a
LEFT JOIN LATERAL (
  SELECT message, at FROM infer_batch.errors WHERE errors.run_id = r.run_id ORDER BY at DESC LIMIT 1) e ON true;
COMMENT ON VIEW infer_batch.progress IS 'A row for each run: how far it is, how fast, and the last error';
COMMENT ON SCHEMA "infer_batch" IS 'Control tables of infer-batch: plans, progress and rejects';
INSERT INTO infer_batch.version (version, made_by) VALUES (1, 'infer-batch 0.1.0');
