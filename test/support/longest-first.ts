import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took more than 12 s in a run of all, the longest first. */
const longest = [
  "contract/sink",
  "spark/spark",
  "run/served-faults",
  "deploy/airflow",
  "sink/parquet/s3/late-attempts",
  "deploy/scored",
  "run/webgpu",
  "run/prompts/servers",
  "corpora/parquet-testing",
  "sink/parquet/s3/every-request",
  "crash/postgres-new-run",
  "crash/postgres-calls",
  "crash/prompts",
  "sink/parquet/local/superseded-runs",
  "crash/s3-held",
  "crash/new-run-calls",
  "run/trees",
  "run/damaged-s3-output",
  "run/mlflow",
  "sink/postgres/staged-cuts",
  "run/s3-input",
  "run/memory",
  "duckdb/vectors",
  "crash/older-run",
  "run/postgres-new-run",
  "golden/golden",
  "run/prompts/money",
  "differential/differential",
  "run/trust",
  "crash/same-verdict",
  "sink/postgres/replace",
  "crash/any-moment",
  "run/rejects",
  "run/expressions",
  "run/nothing-pending",
  "sink/postgres/staged-rows",
  "crash/postgres-emptied",
  "crash/polling-readers",
  "run/bad-moment",
  "sink/postgres/changed-table",
  "run/postgres-damaged",
  "run/types",
  "run/plan-refusals",
  "sink/postgres/older-run",
  "crash/erase-calls",
  "crash/postgres-erase",
  "run/reuse-differential",
  "run/resume",
  "crash/spilled-rows",
  "run/model",
  "cli/backfill",
  "run/kept-predictions",
  "crash/superseded",
  "crash/postgres-staged",
  "crash/postgres-transient-errors",
  "run/s3-output",
  "crash/workers",
  "sink/parquet/s3/lost-answers",
  "sink/postgres/copy-binary",
  "crash/s3-output",
  "run/side-by-side",
  "run/s3-credentials",
  "crash/held-calls",
  "run/prompts/llama-server",
  "run/s3-left-out",
  "crash/postgres-workers",
  "app/open-files",
  "fuzz/parquet-bytes",
  "crash/every-call",
  "storage/s3/reader-thread",
  "examples/churn",
  "sink/postgres/rotated-password",
  "run/damaged-new-run",
  "run/new-run",
  "crash/held-races",
  "run/expression-plans",
  "run/replanned",
  "sink/parquet/local/lost-unsynced",
  "run/arrow",
  "cli/compare",
  "run/postgres-held-runs",
  "sink/parquet/local/failing-disk",
].map((name) => join(import.meta.dirname, "..", `${name}.test.ts`));

/**
 * Starts the longest test files first, so that none of them is the last one, when the other workers have no file left.
 * vitest itself goes by the time of each file in the run before, and on a fresh checkout by the size of the files.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const gone = longest.filter((path) => !existsSync(path));
    if (gone.length > 0) {
      throw new Error(`test/support/longest-first.ts names files that are not there: ${gone.join(", ")}`);
    }
    const sorted = await BaseSequencer.prototype.sort.call(this, files);
    const first = longest.flatMap((path) => sorted.filter(({ moduleId }) => moduleId === path));
    return [...first, ...sorted.filter((file) => !first.includes(file))];
  }
}
