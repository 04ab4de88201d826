import { JobError } from "#src/base/errors.js";
import type { SpecContext } from "#src/job/jobfile/fill-document.js";
import { loadSpec } from "#src/job/jobfile/load.js";
import type { JobSpec } from "#src/job/jobfile/job-spec.js";

/** The least that a spec must say. Lines are counted on in tests: append to it, or replace lines of it. */
export const minimalSpec = `version: 1
name: daily
input:
  path: in/*.parquet
model:
  path: model.onnx
output:
  parquet:
    path: out
`;

const noonMs = Date.UTC(2026, 10, 21, 12);

export function load(text: string, context: Partial<SpecContext> = {}): JobSpec {
  return loadSpec(text, { file: "job.yaml", params: {}, env: {}, nowMs: noonMs, ...context }).spec;
}

/** Exit code, name and text of the JobError that `act` throws, as a user would meet them. */
export function refusal(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error;
    }
    const hint = error.hint === undefined ? "" : `\nhint: ${error.hint}`;
    return `${error.exitCode} ${error.code}\n${error.message}${hint}`;
  }
  throw new Error("nothing was thrown");
}

/** What is said about a spec that does not load. */
export function specRefusal(text: string, context: Partial<SpecContext> = {}): string {
  return refusal(() => load(text, context));
}

/** What `specRefusal` says of a spec with these problems, each with its place. */
export function refusalOf(...problems: readonly string[]): string {
  const [first = "", ...more] = problems;
  const said = more.length === 0 ? first : `job.yaml: ${problems.length} problems\n  ${problems.join("\n  ")}`;
  return `64 SPEC_INVALID\nreading ${said}`;
}
