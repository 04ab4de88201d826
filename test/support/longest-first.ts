import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The test files that took most processor time in a run of all, the longest first. */
const longest = [
  "contract/sink",
  "run/kafka",
  "run/challenger-run",
  "stores/objects/faults",
  "golden/rest-catalog",
  "run/postgres-held-runs",
  "run/held-new-run",
  "targets/postgres/staged-rows",
  "targets/postgres/rollback",
  "deploy/scored",
  "crash/kills",
  "serve/http",
  "run/workers",
  "crash/same-verdict",
  "run/postgres-grants",
  "run/s3-output",
  "run/webgpu",
  "crash/erasure-races",
  "crash/chain",
  "crash/postgres-new-run",
  "run/approve-changed-table",
  "run/arrow",
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
