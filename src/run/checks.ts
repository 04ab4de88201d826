import {
  type Contract,
  outputColumns,
  scoredColumns,
  type ColumnRef,
  featureColumns,
  withColumns,
  rowNumberColumn,
  usedColumns,
} from "../models/binding/contract.js";
import { type ColumnProfile, profileKind } from "../checks/profile/column.js";
import {
  type Aggregates,
  type SpanProfile,
  carriedColumns,
  dividesRows,
  profiledColumns,
} from "../checks/profile/profile.js";
import {
  type ColumnType,
  showType,
  type NamedColumn,
  type OutputRows,
  type RejectedRow,
  showColumnType,
  type SourceColumn,
  type SpanOutput,
  type TypedColumn,
} from "../columns/types.js";
import {
  atKey,
  type PlacedSpec,
  type Log,
  type Queries,
  type GoldenReader,
  type OpenedJob,
  type Input,
} from "../flow/opened-job.js";
import { keyColumns } from "../flow/features.js";
import type { OutputCheckSpec, GoldenSpec } from "../job/jobfile/checks-spec.js";
import { JobError } from "../base/errors.js";
import { didYouMean } from "../base/suggest.js";
import type { Plan, PinnedFile, PlannedChecks, PinnedRun } from "./plan/plan.js";
import { count } from "../base/shown-numbers.js";
import { findDifferences, isComparable, isExpectedNotFinite } from "../checks/golden-rows.js";
import type { Engine } from "../models/engine.js";
import type { ShardFooter } from "../formats/format.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";
import type { ListedShard } from "./plan/compare.js";
import type { OpenShard } from "../sources/source.js";
import type { Sink } from "../targets/target.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import { mapBounded } from "../base/promises.js";
import { parseWholeProfile, isRunProfile, parseRunProfile } from "./lifecycle/profile-text.js";
import { sha256Of } from "../base/sha256.js";

/* What the keys of `checks` ask of a run: columns of its output, golden rows, and profiles to compare it with. */

function refusedKey({ where }: PlacedSpec, path: readonly string[], found: string, hint: string): JobError {
  return new JobError("SPEC_INVALID", `reading ${where(["checks", ...path])}: ${found}`, { hint });
}

/**
 * Checks that the output has the columns that `checks` names, with values that can be checked: those of `unique` are
 * output columns whose values can be compared, those of `slices` are copied from the input and can divide rows.
 * @throws JobError SPEC_INVALID
 */
export function requireCheckedColumns(job: PlacedSpec, contract: Contract): void {
  const { unique = [], slices = [] } = job.spec.checks ?? {};
  const columns = outputColumns(contract);
  const names = columns.map((column) => column.name);
  for (const name of unique) {
    const type = columns.find((column) => column.name === name)?.type;
    if (type === undefined || (typeof type === "object" && type.kind !== "decimal")) {
      const found =
        type === undefined
          ? `there is no output column \`${name}\`${didYouMean(name, names)}`
          : `\`${name}\` is ${showType(type)}, which cannot be part of a key`;
      throw refusedKey(job, ["unique"], found, `the output columns are ${names.join(", ")}`);
    }
  }
  requireOutputs(job, contract);
  const copied = contract.passthrough.map(({ column }) => column);
  for (const name of slices) {
    const type = contract.passthrough.find(({ column }) => column === name)?.source.type;
    if (type === undefined || !dividesRows(type)) {
      const found =
        type === undefined
          ? `there is no column \`${name}\` in output.columns${didYouMean(name, copied)}`
          : `\`${name}\` is ${showType(type)}, expected a text, an integer or a boolean`;
      const hint = "slices are made by the values of columns that are copied from the input to the output";
      throw refusedKey(job, ["slices"], found, hint);
    }
  }
}

/** Any text may be a value of a text column. */
const valueForms: readonly { readonly of: (type: string) => boolean; readonly form: RegExp; readonly what: string }[] =
  [
    { of: isWholeType, form: /^-?\d+$/, what: "whole number" },
    { of: (type) => type === "bool", form: /^(?:true|false)$/, what: "boolean" },
  ];

/** Profiles keep the first 21 bits of a number: from here on, whole numbers share bins. */
const exactNumbers = 2 ** 21;

const hints = {
  range: "range is for predictions that are numbers; checks.sql takes conditions of other columns",
  in: "in is for predictions that are texts, whole numbers or booleans; checks.sql takes conditions of other columns",
  nulls: "name the column before others in model.outputs or output.columns",
} as const;

/** Limits that nothing is compared with would never hold a run. @throws JobError SPEC_INVALID */
function requireOutputs(job: PlacedSpec, contract: Contract): void {
  const limits = Object.entries(job.spec.checks?.outputs ?? {});
  const columns =
    limits.length === 0 ? new Map<string, CheckedColumn>() : checkedColumns(contract, keyColumns(job.spec));
  for (const [name, given] of limits) {
    const unfitting = (path: readonly string[], what: string, hint: string): JobError =>
      refusedKey(job, ["outputs", name, ...path], what, hint);
    const column = columns.get(name);
    if (column === undefined) {
      const names = [...columns.keys()];
      const what = `there is no output column \`${name}\`${didYouMean(name, names)}`;
      throw unfitting([], what, `the columns are ${names.join(", ")}`);
    }
    const wanted = given === "ignore" ? {} : given;
    const type = showType(column.type);
    const unfit = limitWithoutValues(wanted, { type, kind: column.kind });
    if (unfit !== undefined) {
      throw unfitting([], `\`${unfit}\` cannot be checked of \`${name}\`, which ${column.about}`, hints[unfit]);
    }
    const values = wanted.in ?? [];
    const known = valueForms.find(({ of }) => of(type));
    const strange = known && values.find((value) => !known.form.test(value));
    if (strange !== undefined) {
      const what = `${strange} is no ${known?.what}, and \`${name}\` is ${type}`;
      throw unfitting(["in"], what, `list values that \`${name}\` may have`);
    }
    const large = isWholeType(type) && values.find((value) => Math.abs(Number(value)) >= exactNumbers);
    if (typeof large === "string") {
      const what = `${large} is too large: numbers from ${exactNumbers} on are not counted one by one`;
      const condition = `bad: count(case when "${name}" not in (…) then 1 end) = 0`;
      throw unfitting(["in"], what, `write a condition of checks.sql: ${condition}`);
    }
  }
}

interface CheckedColumn {
  readonly type: ColumnType;
  /** undefined: nothing is known of the column, because it comes after others. */
  readonly kind: ColumnProfile["kind"] | undefined;
  /** Why a limit cannot be checked, in messages. */
  readonly about: string;
}

function checkedColumns(
  { outputs, passthrough }: Pick<Contract, "outputs" | "passthrough">,
  keys: ReadonlySet<string>,
): Map<string, CheckedColumn> {
  const carried = passthrough.map(({ column, source: { type } }, index): readonly [string, CheckedColumn] => {
    const isLeft = index >= carriedColumns;
    const about = isLeft
      ? `is not one of the first ${carriedColumns} columns from the input`
      : "comes from the input as it is";
    return [column, { type, kind: isLeft ? undefined : "rows", about }];
  });
  const predicted = outputs.map(({ column, type }, index): readonly [string, CheckedColumn] => {
    const isKey = keys.has(column);
    const isLeft = index >= profiledColumns;
    const about = isLeft
      ? `is not one of the first ${profiledColumns} predicted columns`
      : isKey
        ? "is a key, whose values are not profiled"
        : `is ${showType(type)}`;
    return [column, { type, kind: isLeft ? undefined : profileKind({ type, isKey }), about }];
  });
  return new Map([...carried, ...predicted]);
}

function limitWithoutValues(
  { range, in: values, nulls }: OutputCheckSpec,
  { type, kind }: { readonly type: string; readonly kind: CheckedColumn["kind"] },
): keyof typeof hints | undefined {
  if (range !== undefined && kind !== "numbers") {
    return "range";
  }
  if (values !== undefined && kind !== "values" && !(kind === "numbers" && isWholeType(type))) {
    return "in";
  }
  return nulls !== undefined && kind === undefined ? "nulls" : undefined;
}

function isWholeType(type: string): boolean {
  return /^u?int\d/.test(type);
}

/** Warns of columns of `checks.slices` that have too many values in this run. */
export function warnOfSlices(log: Log, { slices }: SpanProfile): void {
  for (const [column, groups] of slices?.columns ?? []) {
    if (groups === undefined) {
      log.warn(`checks.slices: \`${column}\` has more than ${slices?.values} values, so its slices are not checked`);
    }
  }
}

/**
 * Opens the conditions that a plan pins; undefined: it has none.
 * @throws JobError SPEC_INVALID for a condition that does not fit the output
 */
export async function aggregatesOf(
  job: PlacedSpec,
  queries: Queries,
  { contract, checks }: Pick<Plan, "contract"> & { readonly checks: Pick<NonNullable<Plan["checks"]>, "sql"> | null },
): Promise<Aggregates | undefined> {
  const sql = checks?.sql;
  return sql === undefined
    ? undefined
    : await atKey(job, ["checks", "sql"], () => queries.openAggregates(sql, scoredColumns(contract)));
}

const rowsAtOnce = 65_536;

/**
 * Scores the rows of `checks.golden` in the same way as rows of the input, with this attempt's engine, and compares the
 * predictions with those of the file. Does nothing without `checks.golden`.
 * @throws JobError GOLDEN_MISMATCH, SCHEMA_MISMATCH; INPUT_CHANGED if the file is not the one that the plan pins
 */
export async function checkGolden(
  opened: OpenedJob,
  { plan, engine }: { readonly plan: Plan; readonly engine: Engine },
): Promise<void> {
  const { job, input, attempt, reporter } = opened;
  const { golden: given } = job.spec.checks ?? {};
  if (given === undefined || plan.checks?.golden === undefined) {
    return;
  }
  await using golden = await openGolden(job, input, attempt.signal, given.path);
  const { listed, file, reader } = golden;
  const { name } = file;
  requirePinned(plan, { uri: given.path, sha256: golden.sha256 });
  await requireModel(golden, plan);
  const { rows, schema } = await footerOf(golden);
  const bound = goldenContract(plan.contract, { name, columns: schema.columns });

  const contract = { ...bound, numbered: true } as const; // messages name rows of the file
  const rowsOfFile = { ...plan.input, rows, uniform: true as const, shards: [{ ...listed, rows }] };
  const planOfFile: Plan = { ...plan, contract, input: rowsOfFile, commitRows: Math.min(rows, rowsAtOnce) };
  let differing = 0;
  const texts: string[] = [];
  const ranges = [{ rowStart: 0, rowEnd: rows }];
  await scoreWithoutPublishing(
    opened,
    { plan: planOfFile, engine, decoder: reader.decoder, ranges },
    (_span, output) => {
      const refused = output.rejects.filter((reject) => !isExpected(reject));
      const differences = differencesIn(output, contract, given);
      differing += differences.rows + refused.length + output.filtered;
      texts.push(...differences.texts, ...refused.slice(0, 1).map(rejectText));
      if (output.filtered > 0) {
        texts.push(`input.where leaves out ${count(output.filtered, "row")}`);
      }
    },
  );
  if (differing > 0) {
    const { uri, sha256 } = plan.model;
    throw new JobError(
      "GOLDEN_MISMATCH",
      `checking the golden rows of ${name}: ${differing} of ${count(rows, "row")} differ; ${texts[0]}; scored by model ${uri} (sha256 ${sha256}) on ${engine.provider}`,
      {
        hint: "the model, its preprocessing or the provider is wrong; no row of the input was scored by this attempt. If the file is wrong, write it again; a planned run then needs --new-run",
      },
    );
  }
  reporter.log.info(`the predictions of ${count(rows, "row")} of ${name} are as expected`);
}

async function requireModel({ file, reader }: GoldenFile, { model }: Plan): Promise<void> {
  const made = await reader.modelSha256(file);
  if (made !== undefined && made !== model.sha256) {
    throw new JobError(
      "GOLDEN_MISMATCH",
      `checking the golden rows of ${file.name}: they were made with a model of sha256 ${made}, but ${model.uri} has sha256 ${model.sha256}`,
      { hint: "deploy the model that they were made with, or make golden rows with this model" },
    );
  }
}

async function footerOf({ file, reader }: GoldenFile): Promise<ShardFooter> {
  for await (const footer of reader.decoder.footers([file])) {
    if (footer.rows > 0) {
      return footer;
    }
  }
  throw new JobError("SCHEMA_MISMATCH", `checking the golden rows of ${file.name}: the file has no rows`, {
    hint: "docs/own-checks.md says how to make the file",
  });
}

function differencesIn(
  { rows }: SpanOutput,
  { outputs }: Contract,
  tolerance: GoldenSpec,
): { readonly rows: number; readonly texts: readonly string[] } {
  const pairs = outputs.map(({ column }) => ({
    expected: columnOf(rows, expectedName(column)),
    predicted: columnOf(rows, column),
  }));
  const { rows: differing, first } = findDifferences(pairs, { rowCount: rows.rowCount, tolerance });
  if (first === undefined) {
    return { rows: differing, texts: [] };
  }
  const { column: numbers } = columnOf(rows, rowNumberColumn.name);
  const row = numbers.kind === "fixed" ? numbers.data[first.row] : first.row;
  const text = `row ${row}: \`${first.column}\` is ${first.found}, expected ${first.expected}`;
  return { rows: differing, texts: [text] };
}

function isExpected({ reason, column, value, columns }: RejectedRow): boolean {
  const expected = columns[expectedName(column ?? "")] ?? null;
  return reason === "prediction_not_finite" && isExpectedNotFinite(expected, value);
}

function rejectText({ row, column, reason, value }: RejectedRow): string {
  const at = column === null ? "" : ` (\`${column}\` is ${value ?? "NULL"})`;
  return `row ${row} cannot be scored: ${reason.replaceAll("_", " ")}${at}`;
}

function columnOf({ columns }: OutputRows, wanted: string): NamedColumn {
  const found = columns.find(({ name }) => name === wanted);
  if (found === undefined) {
    throw new RangeError(`the golden rows lack column ${wanted}`);
  }
  return found;
}

interface GoldenFile extends AsyncDisposable {
  readonly listed: ListedShard;
  readonly file: OpenShard;
  readonly reader: GoldenReader;
  readonly sha256: string;
}

async function openGolden(job: PlacedSpec, input: Input, signal: AbortSignal, path: string): Promise<GoldenFile> {
  return await atKey(job, ["checks", "golden", "path"], async () => {
    const { shards, folders } = await input.source.list([path]);
    const [listed] = shards;
    if (listed === undefined) {
      throw new JobError("FILE_MISSING", `opening the golden rows: there is no file ${path}`, {
        hint: "relative paths start from the spec's folder; docs/own-checks.md says how to make the file",
      });
    }
    const file = await input.source.open(listed);
    try {
      const sha256 = await file.digest(signal);
      const reader = await input.openGoldenReader(folders);
      return {
        listed,
        file,
        reader,
        sha256,
        async [Symbol.asyncDispose]() {
          await reader[Symbol.asyncDispose]();
          await file[Symbol.asyncDispose]();
        },
      };
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  });
}

/** Returns the pin of the file of `checks.golden` for a plan; undefined: the spec has none. */
export async function pinGolden(job: PlacedSpec, input: Input, signal: AbortSignal): Promise<PinnedFile | undefined> {
  const path = job.spec.checks?.golden?.path;
  if (path === undefined) {
    return undefined;
  }
  await using golden = await openGolden(job, input, signal, path);
  return { uri: path, sha256: golden.sha256 };
}

/** Checks that the file of `checks.golden` is the one that a plan pins. @throws JobError INPUT_CHANGED */
export function requirePinned({ checks }: Pick<Plan, "checks">, found: PinnedFile | undefined): void {
  const pinned = checks?.golden;
  if (found !== undefined && pinned !== undefined && found.sha256 !== pinned.sha256) {
    throw new JobError(
      "INPUT_CHANGED",
      `comparing ${found.uri} with the plan of this unfinished run: its sha256 is ${found.sha256}, planned ${pinned.sha256}`,
      { hint: "restore the planned golden rows and run again; or abandon this run with --new-run" },
    );
  }
}

interface GoldenSchema {
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

function expectedName(column: string): string {
  return `expected ${column}`;
}

/**
 * The run's, except that the values of folder names are columns of the file, and that the expected predictions are
 * carried in place of the run's carried columns.
 */
function goldenContract(contract: Contract, schema: GoldenSchema): Contract {
  const inputs = contract.inputs.map((binding) => withColumns(binding, inFile));
  const used = new Set(featureColumns({ inputs }).map(({ path }) => path[0]));
  const list = contract.expressions?.list.filter(({ kind, name }) => kind === "where" || used.has(name)) ?? [];
  const features: Contract = {
    ...contract,
    inputs,
    passthrough: [],
    lineage: undefined,
    reuse: undefined,
    expressions: list.length === 0 ? null : { list, folders: [], columns: [] },
  };
  checkFeatures(features, schema);
  const passthrough = contract.outputs.map(({ column, type }) => {
    refuseFeature(column, features);
    const expected = findColumn(schema, column);
    const found = expected.type;
    if (found === undefined || !isComparable(found, type)) {
      throw mismatch(
        schema,
        `column \`${column}\` is ${showColumnType(expected)}, but the prediction is ${showType(type)}`,
      );
    }
    return { column: expectedName(column), source: { name: column, path: [expected.name], type: found } };
  });
  return { ...features, passthrough };
}

function inFile(ref: ColumnRef): ColumnRef {
  return { ...ref, partition: undefined };
}

function checkFeatures(contract: Contract, schema: GoldenSchema): void {
  for (const name of usedColumns(contract)) {
    findColumn(schema, name);
  }
  for (const { name, path, type, computed } of featureColumns(contract)) {
    const found = computed === true ? type : typeAt(schema, path);
    if (found === undefined || showType(found) !== showType(type)) {
      const shown = found === undefined ? "of another type" : showType(found);
      throw mismatch(schema, `column \`${name}\` is ${shown}, but ${showType(type)} in the input`);
    }
  }
}

function typeAt({ columns }: GoldenSchema, [first, ...fields]: readonly string[]): ColumnType | undefined {
  let type = columns.find(({ name }) => name === first)?.type;
  for (const field of fields) {
    const inner: readonly TypedColumn[] = typeof type === "object" && type.kind === "struct" ? type.fields : [];
    type = inner.find(({ name }) => name === field)?.type;
  }
  return type;
}

function findColumn(schema: GoldenSchema, name: string): SourceColumn {
  const found = schema.columns.find((column) => column.name === name);
  if (found === undefined) {
    const names = schema.columns.map((column) => column.name);
    throw mismatch(schema, `it has no column \`${name}\`${didYouMean(name, names)}`);
  }
  return found;
}

function mismatch({ name }: GoldenSchema, found: string): JobError {
  return new JobError("SCHEMA_MISMATCH", `checking the golden rows of ${name}: ${found}`, {
    hint: "write the columns that the model reads to the file, with their types in the input, and every predicted column",
  });
}

function refuseFeature(column: string, features: Contract): void {
  if (usedColumns(features).includes(column)) {
    throw new JobError(
      "CONTRACT",
      `checking the golden rows: \`${column}\` names both an input column and a prediction`,
      {
        hint: "give the prediction another name in model.outputs",
      },
    );
  }
}

const baselineKey = ["checks", "baseline"];

/** Reads what a run is compared with: the profiles of pinned runs, or the file of `checks.baseline`. */
export async function readBaseline(
  job: PlacedSpec,
  sink: Sink,
  input: Input,
  { baseline, profile: planned }: Pick<PlannedChecks, "baseline" | "profile">,
): Promise<RunProfile[]> {
  if (planned === undefined) {
    return await mapBounded(baseline, readsAtOnce, (run) => readPinnedProfile(sink, run));
  }
  const { pin, profile } = await readFile(job, input, planned.uri);
  if (pin.sha256 !== planned.sha256) {
    throw new JobError(
      "INPUT_CHANGED",
      `comparing ${planned.uri} with the plan of this unfinished run: its sha256 is ${pin.sha256}, planned ${planned.sha256}`,
      { hint: "restore the planned profile and run again; or abandon this run with --new-run" },
    );
  }
  return [profile];
}

/** Pins the file of `checks.baseline`; undefined: a run is compared with published runs. @throws JobError SPEC_INVALID */
export async function pinProfile(job: PlacedSpec, input: Input): Promise<PinnedFile | undefined> {
  const { baseline = "published" } = job.spec.checks ?? {};
  return baseline === "published" ? undefined : (await readFile(job, input, baseline)).pin;
}

async function readFile(
  { where }: PlacedSpec,
  { readGiven }: Input,
  uri: string,
): Promise<{ readonly pin: PinnedFile; readonly profile: RunProfile }> {
  const text = await readGiven(uri, baselineKey);
  const profile = parseWholeProfile(text);
  if (profile === undefined) {
    throw new JobError("SPEC_INVALID", `reading ${where(baselineKey)}: ${uri} is not the profile of a run`, {
      hint: "name a copy of _infer-batch/<run id>/profile.json of a finished run, or write published",
    });
  }
  return { pin: { uri, sha256: sha256Of(text) }, profile };
}

/** Checks that the profiles of pinned runs can be read. @throws JobError (75) when one cannot */
export async function requireProfiles(sink: Sink, pinned: readonly PinnedRun[]): Promise<void> {
  await mapBounded(pinned, readsAtOnce, async (run) => {
    if (!isRunProfile(await sink.readProfile(run))) {
      throw noProfile(run);
    }
  });
}

/** Reads the profile of a pinned run. @throws JobError (75) when it cannot be read */
export async function readPinnedProfile(sink: Sink, pinned: PinnedRun): Promise<RunProfile> {
  const profile = parseRunProfile(await sink.readProfile(pinned));
  if (profile === undefined) {
    throw noProfile(pinned);
  }
  return profile;
}

function noProfile({ runId }: PinnedRun): JobError {
  return new JobError("DISK", `reading the profile of run ${runId}: it is not one of this program`, {
    hint: "the checks compare this run with it; use the version of infer-batch that wrote it",
  });
}

/** Profiles that are read at once. */
export const readsAtOnce = 8;
