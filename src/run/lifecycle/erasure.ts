import type { RunVerdict } from "./lifecycle.js";
import type { Agreement } from "../../checks/agreement.js";
import { isRecord } from "../../base/guards.js";

export interface KeyList {
  readonly columns: readonly string[];
  /** A text for each column, for each key. No key is there twice. */
  readonly keys: readonly (readonly string[])[];
  /** Names a key for messages, without its value: "line 7 of keys.txt". */
  readonly placeOf: (index: number) => string;
}

export interface ErasedRows {
  readonly rows: number;
  readonly rejects: number;
}

/** The rows to erase from tables. */
export interface TableErasure {
  readonly keys: KeyList;
  readonly dryRun: boolean;
  readonly by: string;
  /** Takes the indexes of keys that are found. */
  readonly found: Set<number>;
  /** The job whose runs `command` is about; other jobs may write into the same table. */
  readonly job: string;
  /**
   * Whether no attempt continues an unfinished run of these params: the run it is compared with is over. Default: one
   * may.
   */
  readonly isOver?: ((params: Readonly<Record<string, string>>) => boolean) | undefined;
  /** The command line that finishes the run of these params, or decides on it. */
  readonly command: (
    params: Readonly<Record<string, string>>,
    deciding?: { readonly verb: "approve" | "discard"; readonly runId: string },
  ) => string;
}

export interface ErasedTable extends ErasedRows {
  readonly name: string;
}

export const nothingErased: ErasedRows = { rows: 0, rejects: 0 };

/** Removes from a verdict all that names a row: keys that repeat. */
export function verdictWithoutRows(verdict: RunVerdict): RunVerdict {
  const results = verdict.verdict.results.map((result) => {
    const { examples: _, ...numbers } = result.numbers;
    return "examples" in result.numbers ? { ...result, numbers } : result;
  });
  return { ...verdict, verdict: { ...verdict.verdict, results } };
}

/** How a second model agrees with the predictions of a run. Plain JSON. Created once. */
export interface RunComparison extends Agreement {
  readonly model: string;
  readonly sha256: string;
  readonly version: string | null;
  readonly place: string;
  /** Rows that only the second model rejected, by reason. */
  readonly missed: Readonly<Record<string, number>>;
}

/** Reads a result that was stored as JSON; undefined for anything else. */
export function parseRunComparison(json: unknown): RunComparison | undefined {
  return isRecord(json) && Array.isArray(json["columns"]) && isRecord(json["rows"])
    ? (json as unknown as RunComparison)
    : undefined;
}

/** Without the rows that differ most, whose keys name persons. */
export function withoutRows(result: RunComparison): RunComparison {
  return { ...result, columns: result.columns.map(([name, measures]) => [name, { ...measures, most: [] }]) };
}
