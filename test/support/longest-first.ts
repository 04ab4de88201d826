import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took more than 18 s in a run of all, the longest first. */
const longest = [
  "contract/sink",
  "run/held-new-run",
  "crash/kills",
  "spark/spark",
  "run/served-faults",
  "targets/parquet/s3/late-attempts",
  "targets/parquet/s3/late-finish",
  "run/prompts/servers",
  "crash/erasure-races",
  "crash/erasure-ends",
  "deploy/scored",
  "crash/prompts",
  "deploy/airflow",
  "run/webgpu",
  "crash/s3-held",
  "run/postgres-held-runs",
  "crash/postgres-calls",
  "checks/simulation",
  "targets/parquet/s3/every-request",
  "run/s3-input",
  "run/prompts/money",
  "corpora/parquet-testing",
  "crash/older-run",
  "targets/parquet/local/superseded-runs",
  "run/damaged-new-run",
  "crash/new-run-calls",
  "targets/postgres/dropped-constraints",
  "targets/parquet/s3/held-requests",
  "crash/s3-output",
  "targets/parquet/s3/lost-answers",
  "crash/postgres-new-run",
  "run/memory",
  "run/postgres-grants",
  "run/s3-output",
  "run/postgres-new-run",
  "run/plan-refusals",
  "targets/postgres/staged-cuts",
  "targets/postgres/copy-binary",
  "cli/doctor",
  "run/served-urls",
  "run/approve-changed-table",
  "crash/held-calls",
  "crash/postgres-staged",
  "targets/parquet/local/lost-unsynced",
  "golden/golden",
  "crash/postgres-workers",
  "targets/postgres/rollback",
  "run/reuse-differential",
  "run/approve-changed-mode",
  "targets/postgres/replace",
  "examples/churn",
  "run/s3-credentials",
  "run/prompts/answers",
  "run/damaged-s3-output",
  "run/postgres-readers",
  "run/arrow",
  "fuzz/parquet-bytes",
  "targets/postgres/rotated-password",
  "run/expressions",
  "run/rejects",
  "duckdb/vectors",
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
