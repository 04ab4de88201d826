import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took more than 12 s in a run of all, the longest first. */
const longest = [
  "contract/sink",
  "deploy/airflow",
  "sink/parquet/s3/every-request",
  "deploy/scored",
  "corpora/parquet-testing",
  "spark/spark",
  "crash/held-calls",
  "sink/parquet/s3/late-attempts",
  "crash/new-run-calls",
  "run/webgpu",
  "run/held-runs",
  "deploy/kubernetes-server",
  "sink/parquet/local/new-run-power",
  "run/memory",
  "duckdb/vectors",
  "run/expression-plans",
  "crash/s3-output",
  "run/s3-input",
  "run/s3-output",
  "crash/postgres-staged",
  "formats/parquet/pages/levels",
  "run/damaged-s3-output",
  "crash/postgres-new-run",
  "crash/postgres-calls",
  "sink/parquet/local/failing-disk",
  "run/served-faults",
  "crash/workers",
  "crash/every-call",
  "golden/golden",
  "run/expressions",
  "differential/differential",
  "run/bad-input",
  "sink/parquet/local/lost-unsynced",
  "run/resume",
  "crash/postgres-transient-errors",
  "run/s3-credentials",
  "run/rejects",
  "run/trees",
  "sink/parquet/local/superseded-runs",
  "crash/superseded",
  "cli/compare",
  "run/types",
  "run/trust",
  "sink/parquet/s3/lost-answers",
  "run/postgres-held-runs",
  "run/bad-moment",
  "sink/postgres/copy-binary",
  "crash/any-moment",
  "sink/postgres/staged-cuts",
  "crash/postgres-workers",
  "run/feature-profiles",
  "run/mlflow",
  "crash/postgres-emptied",
  "crash/held-races",
  "crash/older-run",
  "run/new-run",
  "run/arrow",
  "run/nothing-pending",
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
