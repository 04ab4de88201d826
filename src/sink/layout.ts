import { join } from "node:path";
import type { RunId } from "../plan/plan.js";

/**
 * Names under `output.parquet.path`. All but the parts start with `_` and do not end in `.parquet`, so that
 * Spark, Hive, Athena, pyarrow and `*.parquet` globs see predictions only.
 */
export interface Layout {
  readonly folder: string;
  readonly success: string;
  readonly manifest: string;
  /** Names the run that the folder belongs to. */
  readonly claim: string;
  readonly control: string;
  readonly plan: string;
  readonly temporary: string;
  readonly rejects: string;
  part(span: number): string;
  /** The file of a span's rejected rows, in `rejects`. */
  rejectsOf(span: number): string;
  /** The span of a part's file name, or undefined when it is no part of this run. */
  spanOf(fileName: string): number | undefined;
}

const partName = /^part-(\d{5,})\.(.+)\.parquet$/;

export function layoutOf(folder: string, runId: RunId): Layout {
  const control = join(folder, "_infer-batch", runId);
  return {
    folder,
    success: join(folder, "_SUCCESS"),
    manifest: join(folder, "_manifest.json"),
    claim: join(folder, "_infer-batch", "run.json"),
    control,
    plan: join(control, "plan.json"),
    temporary: join(control, "tmp"),
    rejects: join(folder, "_rejects"),
    part: (span) => partFileName(span, runId),
    rejectsOf: (span) => partFileName(span, runId).replace(/parquet$/, "jsonl"),
    spanOf(fileName) {
      const [, digits, run] = partName.exec(fileName) ?? [];
      return run === runId && partFileName(Number(digits), runId) === fileName ? Number(digits) : undefined;
    },
  };
}

function partFileName(span: number, runId: RunId): string {
  return `part-${String(span).padStart(5, "0")}.${runId}.parquet`;
}

/** The run that a part's file name belongs to. */
export function runOfPart(fileName: string): string | undefined {
  return partName.exec(fileName)?.[2];
}
