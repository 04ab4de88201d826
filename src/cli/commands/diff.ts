import { type CommandLine, paramAs, runFlag, collect, toleranceOf, type CommandAnswer } from "../flags.js";
import { stat } from "node:fs/promises";
import { openRowJoin } from "../../job/duckdb.js";
import { type RunOptions, budgetOf, openLoaded, readRunSpec } from "../../job/open.js";
import { defaultMemory, usableCores } from "../../job/machine.js";
import { parquetFolder, readSpec } from "../../job/reading.js";
import { lineageColumns, reuseColumn } from "../../models/binding/contract.js";
import type { Agreement, Measures } from "../../checks/agreement.js";
import { isRunId, paramTexts } from "../../run/plan/identity.js";
import { agreementTables, comparedFields } from "../../report/agreement.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { fitTable } from "../../report/table.js";
import { type DiffOptions, type DiffSide, columnsOfRun, diffRows, openDiffSide } from "../../run/two-sets.js";
import type { Log } from "../../flow/opened-job.js";
import { usualKey } from "../../job/jobfile/job-spec.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { JobError } from "../../base/errors.js";
import { memoryBudget } from "../../base/memory-budget.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const diffCommand: CommandLine = {
  argument: ["Job spec, a YAML file; or a folder of Parquet files"],
  flags: {
    ...paramAs("Set a param of the spec; may be repeated. These params name the run that is compared"),
    ...runFlag,
    "--against <name=value>": [
      "Compare with the run that has this param in place of that of --param, with the run of this id, or with this table; may be repeated. For a folder: the other folder",
      collect,
    ],
    "--table <name>": "Compare this table of the spec's database in place of a run, such as scores.daily",
    "--key <column>": [
      "Column that identifies a row; may be repeated. Default: output.postgres.key, else checks.unique, reuse.key or output.columns",
      collect,
    ],
    "--tolerance <difference>": [
      "Largest difference of two floating-point numbers that count as equal",
      toleranceOf,
      0,
    ],
    "--json": "Print one line of JSON, with all columns",
  },
  required: ["against"],
  examples: [
    "infer-batch diff job.yaml --param ds=2026-01-31 --against ds=2026-01-30",
    "infer-batch diff out/new --against out/old --key customer_id --json",
  ],
  run: diff,
};

interface DiffCommandOptions extends RunOptions {
  readonly against: readonly string[];
  /** A table in place of run B. */
  readonly table?: string;
  readonly key?: readonly string[];
  readonly tolerance: number;
  readonly json?: boolean;
}

async function diff(spec: string, options: DiffCommandOptions, io: SafeIo): Promise<CommandAnswer> {
  const isFolder = await stat(spec).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
  return await (isFolder ? diffFolders(spec, options, io) : diffRuns(spec, options, io));
}

async function diffRuns(spec: string, options: DiffCommandOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const loaded = await readRunSpec(spec, options);
  const [before, table] = await readAgainst(spec, options, loaded);
  await using a = await openLoaded(before, spec, { log });
  await using b = await openLoaded(loaded, spec, { log });
  const keys = options.key ?? usualKey(loaded.spec);
  const sides = [await openDiffSide(a, keys, table), await openDiffSide(b, keys, options.table)] as const;
  if (sides[0].name === sides[1].name) {
    throw new JobError("USAGE", `comparing run ${sides[1].name}: --against names the same run`, {
      hint: "give another value, such as --param ds=2026-01-31 --against ds=2026-01-30",
    });
  }
  // A date in which the runs differ would make each row another one.
  const ofA = columnsOfRun(sides[0]);
  const ofRun = columnsOfRun(sides[1]).filter((name) => ofA.includes(name));
  const key = options.key ?? keys.filter((name) => !ofRun.includes(name));
  const { output, reuse } = loaded.spec;
  const unlike = [...(output.lineage ? lineageColumns : []), ...(reuse === undefined ? [] : [reuseColumn])];
  const ignored = [...unlike.map(({ name }) => name), ...ofRun];
  const { duckDbBytes } = budgetOf(loaded.spec, usableCores());
  return await diffSides(sides, { tolerance: options.tolerance, key, memoryBytes: duckDbBytes, ignored, log });
}

/** `--against` names the id of run A, or params in place of those of run B; or it names a table. */
async function readAgainst(
  spec: string,
  { param, run, table, against }: DiffCommandOptions,
  loaded: LoadedSpec,
): Promise<readonly [LoadedSpec, string?]> {
  const [id = "", ...more] = against;
  const isTable = more.length === 0 && !id.includes("=") && !isRunId(id);
  if (isTable && (table !== undefined || loaded.spec.output.postgres !== undefined)) {
    return [loaded, id];
  }
  if (id.includes("=") || more.length > 0) {
    const others = run === undefined ? param : paramTexts((await readRunSpec(spec, { param, run })).spec.params);
    return [await readSpec(spec, { param: [...others, ...against] })];
  }
  return [await readRunSpec(spec, { param: [], run: id })];
}

async function diffFolders(folder: string, options: DiffCommandOptions, io: SafeIo): Promise<CommandAnswer> {
  const { key, tolerance } = options;
  const [against, ...more] = options.against;
  if (against === undefined || more.length > 0 || key === undefined) {
    const found = "--against must name one folder, and --key the columns of its key";
    throw new JobError("USAGE", `comparing ${folder}: ${found}`, {
      hint: "such as: infer-batch diff out/new --against out/old --key customer_id",
    });
  }
  const sides = [await parquetFolder(against), await parquetFolder(folder)] as const;
  const { duckDbBytes } = memoryBudget(defaultMemory(usableCores()));
  const log = createWarningLog(io.stderr);
  return await diffSides(sides, { tolerance, key, memoryBytes: duckDbBytes, ignored: [], log });
}

async function diffSides(
  sides: readonly [DiffSide, DiffSide],
  { memoryBytes, log, ...options }: DiffOptions & { readonly memoryBytes: number; readonly log: Pick<Log, "warn"> },
): Promise<CommandAnswer> {
  const { key } = options;
  if (key.length === 0) {
    throw new JobError("USAGE", "comparing the rows: no column identifies a row", {
      hint: "name the columns that do with --key",
    });
  }
  const folders = sides.map(({ rows }) => rows.folder);
  await using joiner = await openRowJoin({ folders, threads: usableCores(), memoryBytes });
  const difference = await diffRows(joiner, sides, options);
  const { rows_a: ofA, rows_b: ofB, rows_gone: gone, rows_added: added } = difference.rows;
  if (ofA > 0 && ofB > 0 && gone === ofA && added === ofB) {
    log.warn(
      `A and B have rows, but no key (${key.join(", ")}) is in both: name the columns that identify a row with --key, without those that differ from run to run, such as a date`,
    );
  }
  const [a, b] = sides.map(({ name }) => name) as [string, string];
  return {
    json: () => ({ a, b, key, ...comparedFields(difference, ["a", "b"], ({ keys }) => ({ columns: keys })) }),
    text: (width) => differenceText(difference, { a, b, key }, width),
  };
}

const shownColumns = 10;

function differing([, { figures, rows }]: readonly [string, Measures]): number {
  return figures["rows_beyond_tolerance"] ?? rows - (figures["rows_equal"] ?? 0);
}

function differenceText(
  { rows, columns, apart, tolerance }: Agreement,
  { a, b, key }: { readonly a: string; readonly b: string; readonly key: readonly string[] },
  width: number | undefined,
): string[] {
  const most = columns.toSorted((left, right) => differing(right) - differing(left));
  const left = most.length - shownColumns;
  const counts = {
    "only in A (gone)": rows.rows_gone,
    "only in B (added)": rows.rows_added,
    "in both, changed": rows.rows_changed,
    "in both, equal": rows.rows_compared - rows.rows_changed,
  };
  const repeated = rows.repeated.map((each) => [each.key, showCount(each.a), showCount(each.b)]);
  return [
    `A  ${a}: ${count(rows.rows_a, "row")}`,
    `B  ${b}: ${count(rows.rows_b, "row")}`,
    `rows by ${key.join(", ")}`,
    ...fitTable(
      Object.entries(counts).map(([name, number]) => [name, showCount(number)]),
      { right: [1], width },
    ),
    // Of keys that are several times on a side, only the numbers of rows are compared.
    ...(rows.keys_repeated === 0
      ? []
      : [
          `${count(rows.keys_repeated, "key")} with several rows, not compared; ${showCount(rows.keys_uneven)} not as often in B as in A`,
          ...fitTable([["key", "rows in A", "in B"], ...repeated], { right: [1, 2], width }),
        ]),
    ...agreementTables({ columns: most.slice(0, shownColumns), apart, tolerance }, ["A", "B"], width),
    ...(left <= 0 ? [] : [`${count(left, "more column")}, with fewer differences: --json has all`]),
  ];
}
