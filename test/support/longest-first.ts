import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took more than 14 s in a run of all, the longest first. */
const longest = [
  "contract/sink",
  "checks/simulation",
  "run/held-new-run",
  "crash/erasure-races",
  "crash/kills",
  "spark/spark",
  "sink/parquet/s3/late-attempts",
  "run/served-faults",
  "deploy/airflow",
  "sink/parquet/s3/every-request",
  "run/kept-pieces",
  "run/prompts/servers",
  "run/memory",
  "crash/erasure-ends",
  "crash/prompts",
  "crash/postgres-calls",
  "deploy/scored",
  "crash/postgres-new-run",
  "sink/parquet/s3/lost-answers",
  "sink/parquet/s3/late-finish",
  "run/served-urls",
  "sink/postgres/staged-cuts",
  "crash/postgres-transient-errors",
  "run/plan-refusals",
  "run/webgpu",
  "crash/older-run",
  "run/prompts/answers",
  "run/kept-predictions",
  "crash/s3-held",
  "sink/postgres/dropped-constraints",
  "crash/postgres-staged",
  "run/postgres-held-runs",
  "crash/s3-output",
  "run/approve-changed-mode",
  "cli/doctor",
  "run/postgres-new-run",
  "run/kept-other-job",
  "sink/postgres/copy-binary",
  "run/postgres-grants",
  "crash/new-run-calls",
  "crash/held-calls",
  "run/s3-credentials",
  "crash/postgres-workers",
  "app/missing-library",
  "run/damaged-new-run",
  "corpora/parquet-testing",
  "run/s3-input",
  "run/prompts/money",
  "sink/postgres/rotated-password",
  "sink/postgres/rollback",
  "sink/postgres/replace",
  "sink/parquet/local/new-run-power",
  "examples/churn",
  "sink/postgres/staged-rows",
  "run/s3-output",
  "run/expressions",
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
