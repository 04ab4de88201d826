import { openLoaded } from "../../app/job-context.js";
import { rowFinders } from "../../app/duckdb/open-row-finder.js";
import { readKeys } from "../../app/reading/read-keys.js";
import { type JobOptions, type LoadWith, readSpec, readSpecOnce } from "../../app/reading/read-spec.js";
import { paramTexts } from "../../plan/identity.js";
import type { KeyList } from "../../publish/erasure.js";
import { count } from "../../report/report.js";
import { table } from "../../report/table.js";
import { type ErasedRun, eraseRows } from "../../run/erase.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { splitTable } from "../../spec/postgres-spec.js";
import { JobError } from "../../util/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";
import { keyOfValues } from "../../spec/usual-key.js";

export interface EraseOptions extends JobOptions {
  readonly keys: string;
  readonly key?: readonly string[];
  readonly dryRun?: boolean;
  readonly json?: boolean;
}

interface EraseReport {
  readonly dryRun: boolean;
  readonly columns: readonly string[];
  readonly keys: number;
  readonly keysFound: number;
  readonly runs: readonly ErasedRun[];
}

/** Removes the rows of some keys from the output of all runs of a job, and says how many there were. */
export async function eraseCommand(spec: string, options: EraseOptions, io: SafeIo): Promise<void> {
  const log = createWarningLog(io.stderr);
  const loaded = await readSpec(spec, options, { standIns: "all" }); // runs with any params are searched
  const keys = await readKeys(options.keys, { columns: options.key, usual: () => keyOfValues(loaded.spec) });
  refuseOtherColumns(loaded.spec, keys);
  const load = await readSpecOnce(spec, options);
  await using job = await openLoaded(loaded, spec, { log });
  const found = new Set<number>();
  const runs = await eraseRows(job, {
    keys,
    dryRun: options.dryRun === true,
    found,
    openFinder: rowFinders(keys, { memoryBytes: job.memory.duckDbBytes, found }),
    paramsOfTable: (wanted, params) => paramsOfTable(load, { wanted, params, given: job.spec.params }),
    openJob: async (params) => await openLoaded(load(params), spec, { log }),
  });
  const report = {
    dryRun: options.dryRun === true,
    columns: keys.columns,
    keys: keys.keys.length,
    keysFound: found.size,
    runs,
  };
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify({ job: job.spec.name, ...reportJson(report) })}\n`
      : `${reportText(report).join("\n")}\n`,
  );
  refuseRetained(report);
}

/**
 * Returns the params that the table name (`schema.table`) depends on and whose values differ from the given ones.
 * undefined: the spec does not give this name for these params.
 */
function paramsOfTable(
  load: LoadWith,
  {
    wanted,
    params,
    given,
  }: {
    readonly wanted: string;
    readonly params: Readonly<Record<string, string>>;
    readonly given: Readonly<Record<string, string>>;
  },
): Readonly<Record<string, string>> | undefined {
  const isNamed = (by: Readonly<Record<string, string>>): boolean => {
    try {
      const found = splitTable(load(by).spec.output.postgres?.table ?? "");
      return `${found.schema}.${found.table}` === wanted;
    } catch (error) {
      if (!(error instanceof JobError)) {
        throw error;
      }
      return false; // the spec declares other params now
    }
  };
  return isNamed(params)
    ? Object.fromEntries(Object.entries(params).filter(([name]) => !isNamed({ ...params, [name]: given[name] ?? "" })))
    : undefined;
}

/** Refuses keys of columns that are not copied from the input. @throws JobError USAGE */
function refuseOtherColumns({ output }: JobSpec, { columns }: KeyList): void {
  const other = columns.find((column) => !output.columns.includes(column));
  if (other !== undefined) {
    throw new JobError("USAGE", `erasing by ${columns.join(", ")}: ${other} is not in output.columns`, {
      hint: `name the columns of the key with --key; output.columns has ${output.columns.join(", ") || "none"}`,
    });
  }
}

const isRetained = ({ retained }: ErasedRun): boolean => retained !== undefined;

/** @throws JobError NOT_ERASED if rows may be left in a run */
function refuseRetained({ dryRun, runs }: EraseReport): void {
  const left = runs.filter(isRetained);
  if (left.length > 0 && !dryRun) {
    throw new JobError("NOT_ERASED", `erasing: ${count(left.length, "run")} may still have rows of these keys`, {
      hint: "do for each run what the report says, and run the same command again",
    });
  }
}

function totalOf(runs: readonly ErasedRun[], what: "rows" | "rejects"): number {
  return runs.reduce((sum, run) => sum + run[what], 0);
}

/** The runs that a report lists: those that had rows, and those that may still have some. */
function shownRuns({ runs }: EraseReport): readonly ErasedRun[] {
  return runs.filter((run) => run.rows + run.rejects > 0 || isRetained(run));
}

function reportJson(report: EraseReport): object {
  const { dryRun, columns, keys, keysFound, runs } = report;
  return {
    dry_run: dryRun,
    key: columns,
    keys,
    keys_not_found: keys - keysFound,
    rows: totalOf(runs, "rows"),
    rejects: totalOf(runs, "rejects"),
    retained: runs.filter(isRetained).length,
    runs: shownRuns(report).map(({ runId, params, place, rows, rejects, retained }) => ({
      run_id: runId ?? null,
      params,
      output: place,
      rows,
      rejects,
      retained: retained ?? null,
    })),
  };
}

function reportText(report: EraseReport): string[] {
  const { dryRun, columns, keys, keysFound, runs } = report;
  const shown = shownRuns(report);
  const lines =
    shown.length === 0
      ? []
      : table([["run or table", "params", "rows", "rejected", ""], ...shown.map(cellsOf)], { right: [2, 3] });
  const [rows, rejects] = [totalOf(runs, "rows"), totalOf(runs, "rejects")];
  const missing = keys - keysFound;
  return [
    ...lines,
    `${dryRun ? "would erase" : "erased"} ${count(rows, "row")} and ${count(rejects, "rejected row")} of ${count(keys, "key")} (${columns.join(", ")}); ${count(missing, "key")} not found`,
    ...(dryRun ? [] : ["rows that the input still has are scored again by the next run that reads it"]),
  ];
}

function cellsOf({ runId, params, place, rows, rejects, retained }: ErasedRun): string[] {
  const shown = paramTexts(params);
  return [runId ?? place, shown.join(" "), String(rows), String(rejects), retained ?? ""];
}
