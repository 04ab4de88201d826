import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took more than 16 s in a run of all, the longest first. */
const longest = [
  "run/held-new-run",
  "crash/erasure-races",
  "contract/sink",
  "checks/simulation",
  "run/kept-pieces",
  "sink/parquet/s3/every-request",
  "run/served-faults",
  "sink/parquet/s3/late-finish",
  "run/webgpu",
  "crash/erasures-at-once",
  "crash/s3-held",
  "run/approve-changed-table",
  "run/prompts/servers",
  "run/postgres-held-runs",
  "crash/prompts",
  "deploy/airflow",
  "run/feature-profiles",
  "cli/doctor",
  "run/postgres-grants",
  "run/memory",
  "crash/older-run",
  "crash/reuse",
  "spark/spark",
  "sink/parquet/s3/late-attempts",
  "crash/postgres-new-run",
  "crash/postgres-calls",
  "sink/postgres/staged-cuts",
  "duckdb/vectors",
  "deploy/scored",
  "crash/erasure-ends",
  "golden/golden",
  "run/kept-predictions",
  "run/rejects",
  "run/s3-input",
  "sink/parquet/local/superseded-runs",
  "differential/differential",
  "crash/postgres-staged",
  "run/approve-changed-mode",
  "run/postgres-new-run",
  "run/prompts/answers",
  "run/prompts/money",
  "run/expressions",
  "run/postgres-readers",
  "run/damaged-s3-output",
  "run/max-rejects",
  "run/served-urls",
  "sink/parquet/local/lost-unsynced",
  "crash/s3-output",
  "corpora/parquet-testing",
  "crash/polling-readers",
  "crash/postgres-transient-errors",
  "crash/new-run-calls",
  "run/s3-left-out",
  "run/s3-output",
  "cli/compare",
  "crash/same-verdict",
  "sink/parquet/s3/lost-answers",
  "run/plan-refusals",
  "crash/superseded",
  "crash/workers",
  "run/expression-plans",
  "run/kept-other-job",
  "run/signals",
  "cli/backfill",
  "sink/postgres/staged-rows",
  "run/s3-credentials",
  "run/trees",
  "crash/held-races",
  "cli/decided-nights",
  "sink/parquet/local/new-run-power",
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
