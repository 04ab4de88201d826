import { count } from "../base/shown-numbers.js";
import {
  type ColumnRef,
  type Contract,
  featureColumns,
  type InputBinding,
  rowNumberColumn,
  usedColumns,
} from "../models/binding/contract.js";
import { findDifferences, isComparable, isExpectedNotFinite } from "../checks/golden-rows.js";
import {
  type ColumnType,
  type NamedColumn,
  type OutputRows,
  type RejectedRow,
  showColumnType,
  showType,
  type SourceColumn,
  type SpanOutput,
} from "../columns/types.js";
import type { Engine } from "../models/engine.js";
import type { ShardFooter } from "../formats/format.js";
import type { PinnedFile, Plan } from "./plan/plan.js";
import { atKey, type GoldenReader, type OpenedJob, type PlacedSpec, type Input } from "../flow/context.js";
import type { GoldenSpec } from "../job/jobfile/checks-spec.js";
import { assertNever, JobError } from "../base/errors.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";
import type { ListedShard } from "./plan/compare.js";
import type { OpenShard } from "../sources/source.js";
import { didYouMean } from "../base/suggest.js";

/** The number of rows that are scored and compared at once. */
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

/** How many rows differ from the file, and what is said of the first one. */
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

/** Whether a row was rejected for a prediction that the file expects. */
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

/** The file of `checks.golden`. */
interface GoldenFile extends AsyncDisposable {
  readonly listed: ListedShard;
  readonly file: OpenShard;
  readonly reader: GoldenReader;
  /** The digest of the file, in hexadecimal. */
  readonly sha256: string;
}

/** Opens the file of `checks.golden`, and computes its digest. @throws JobError FILE_MISSING */
async function openGolden(job: PlacedSpec, input: Input, signal: AbortSignal, path: string): Promise<GoldenFile> {
  const { source } = input;
  return await atKey(job, ["checks", "golden", "path"], async () => {
    const { shards, folders } = await source.list([path]);
    const [listed] = shards;
    if (listed === undefined) {
      throw new JobError("FILE_MISSING", `opening the golden rows: there is no file ${path}`, {
        hint: "relative paths start from the spec's folder; docs/own-checks.md says how to make the file",
      });
    }
    const file = await source.open(listed);
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

/**
 * Checks that the file of `checks.golden` is the one that a plan pins.
 * @throws JobError INPUT_CHANGED
 */
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

/** The columns of the file of golden rows. */
interface GoldenSchema {
  /** The name of the file in messages. */
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

function expectedName(column: string): string {
  return `expected ${column}`;
}

/**
 * Makes the contract that scores golden rows: the run's, except that the values of folder names are columns of the file,
 * and that the expected predictions are carried in place of the run's carried columns.
 * @throws JobError SCHEMA_MISMATCH, CONTRACT
 */
function goldenContract(contract: Contract, schema: GoldenSchema): Contract {
  const inputs = contract.inputs.map(ofFile);
  const used = new Set(featureColumns({ inputs }).map(({ path }) => path[0]));
  const list = contract.expressions?.list.filter(({ kind, name }) => kind === "where" || used.has(name)) ?? [];
  const features: Contract = {
    ...contract,
    inputs,
    passthrough: [],
    lineage: undefined,
    reuse: undefined,
    expressions: list.length === 0 ? null : { list, folders: [] },
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

function ofFile(binding: InputBinding): InputBinding {
  switch (binding.kind) {
    case "matrix":
      return { ...binding, columns: binding.columns.map(inFile) };
    case "list":
    case "padded":
    case "text":
      return { ...binding, column: inFile(binding.column) };
    case "mask":
      return binding;
    default:
      return assertNever(binding);
  }
}

function inFile(ref: ColumnRef): ColumnRef {
  return { ...ref, partition: undefined };
}

/** Checks that the columns which the model needs are in the file, with the types that they have in the input. */
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
    const inner: readonly { readonly name: string; readonly type: ColumnType }[] =
      typeof type === "object" && type.kind === "struct" ? type.fields : [];
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
