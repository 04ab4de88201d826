import {
  type ColumnRef,
  type Contract,
  type Expression,
  type InputBinding,
  type PaddedBinding,
  featureColumns,
  inputColumns,
} from "../models/binding/contract.js";
import type { RowFault } from "./pack/input-target.js";
import type { ColumnType, RejectReason, RejectedRow } from "../columns/types.js";
import type { Decoder, ShardFile } from "../formats/format.js";
import { JobError, assertNever, reworded } from "../base/errors.js";
import type { PlannedShard } from "../run/plan/plan.js";
import type { Spans } from "../run/plan/spans.js";
import { outputName } from "../job/jobfile/values.js";
import type { NullFeatures } from "../report/attempt-record.js";
import { showCount, count } from "../base/shown-numbers.js";
import type { OpenShard } from "../sources/source.js";
import type { ShardFiles } from "./opened-job.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";

export interface RejectOptions {
  readonly spans: Pick<Spans, "locate">;
  readonly decoder: Pick<Decoder, "describeRows" | "describeFailure">;
  readonly source: ShardFiles;
  readonly contract: Contract;
  /** The part of the hint that says what is kept if a bad row ends the run. */
  readonly kept: string;
  /** NULL counts of the features, from planning. Default: unknown. */
  readonly nullFeatures?: Pick<NullFeatures, "nulls" | "rows"> | undefined;
}

const rowsPerQuery = 1000;

/** Describes faults with their shard, row and values, which are read again: packed rows no longer have them. */
export async function describeFaults(tools: RejectOptions, faults: readonly RowFault[]): Promise<RejectedRow[]> {
  const rejected: RejectedRow[] = [];
  for (const { shard, members } of byShard(tools.spans, faults)) {
    await using opened = await tools.source.open(shard);
    for (let start = 0; start < members.length; start += rowsPerQuery) {
      const group = members.slice(start, start + rowsPerQuery);
      rejected.push(...(await describeGroup(tools, { shard, file: opened }, group)));
    }
  }
  return rejected;
}

interface Member {
  readonly fault: RowFault;
  /** The row's number in the shard. */
  readonly row: number;
}

function byShard(
  spans: RejectOptions["spans"],
  faults: readonly RowFault[],
): { shard: PlannedShard; members: Member[] }[] {
  const groups = new Map<PlannedShard, Member[]>();
  for (const fault of faults.toSorted((one, other) => one.row - other.row)) {
    const { shard, row } = spans.locate(fault.row);
    const members = groups.get(shard) ?? [];
    members.push({ fault, row });
    groups.set(shard, members);
  }
  return [...groups].map(([shard, members]) => ({ shard, members }));
}

async function describeGroup(
  { decoder, contract }: RejectOptions,
  { shard, file }: { shard: PlannedShard; file: ShardFile & Pick<OpenShard, "partitions"> },
  members: readonly Member[],
): Promise<RejectedRow[]> {
  const { expressions } = contract;
  const carried = contract.passthrough.map(({ source }) => source);
  const atFault = new Set(members.map(({ fault }) => fault.column));
  const features = featureColumns(contract).filter(({ name }) => atFault.has(name));
  const failing = expressions?.list.filter(({ name }) => atFault.has(name)) ?? [];
  const used = failing.flatMap((expression) => usedRefs(contract, expression));
  const columns = [...carried, ...features, ...used];
  const { partitions } = file;
  const rows = members.map(({ row }) => row);
  const values = await decoder.describeRows({ file, rows, columns, expressions, partitions });
  return members.map(({ fault, row }) => {
    const found = values.get(row) ?? [];
    const valueOf = (refs: readonly ColumnRef[], name: string | undefined, from: number): string | null =>
      found[from + refs.findIndex((ref) => ref.name === name)] ?? null;
    const expression = fault.reason === "expression" ? failing.find(({ name }) => name === fault.column) : undefined;
    const value =
      expression === undefined
        ? (fault.value ?? valueOf(features, fault.column, carried.length))
        : expression.uses
            .map((name) => `${name} = ${valueOf(used, name, carried.length + features.length) ?? "NULL"}`)
            .join(", ");
    const names = contract.passthrough.map(({ column }, index): [string, string | null] => [
      column,
      found[index] ?? null,
    ]);
    const column = fault.column ?? null;
    return { shard: shard.uri, row, columns: Object.fromEntries(names), column, reason: reasonOf(fault, value), value };
  });
}

function usedRefs({ expressions }: Contract, { uses }: Expression): ColumnRef[] {
  const folders = expressions?.folders ?? [];
  // Their values are read as texts, for every type.
  return uses.map((name) => folders.find((ref) => ref.name === name) ?? { name, path: [name], type: "utf8" });
}

function reasonOf({ reason }: RowFault, value: string | null): RejectReason {
  switch (reason) {
    case "expression":
      return "expression_failed";
    case "model":
      return "model_failed";
    case "target":
      return "target_cannot_hold";
    case "prediction":
      return "prediction_not_finite";
    case "unreadable":
    case "not_finite":
    case "too_long":
    case "prompt_too_long":
    case "answer_refused":
    case "answer_cut_off":
    case "answer_invalid":
      return reason;
    case "missing":
      return value === null ? "null" : "does_not_fit";
    default:
      return assertNever(reason);
  }
}

async function badRowError(tools: RejectOptions, fault: RowFault): Promise<Error> {
  const [rejected] = await describeFaults(tools, [fault]);
  if (rejected === undefined) {
    return new Error("a fault without a row");
  }
  const { shard } = tools.spans.locate(fault.row);
  await using opened = await tools.source.open(shard);
  const { expressions } = tools.contract;
  const expression = expressions?.list.find(({ name }) => fault.reason === "expression" && name === fault.column);
  if (expression === undefined) {
    return explainRow(rejected, opened.name, tools);
  }
  const request = { file: opened, rows: [rejected.row], expressions, expression, partitions: opened.partitions };
  const said = await tools.decoder.describeFailure(request);
  const values = expression.uses.length === 0 ? "" : ` (${shorten(rejected.value)})`;
  return explainRow({ ...rejected, value: `${said}${values}` }, opened.name, tools);
}

async function withRow(tools: RejectOptions, error: unknown, fault: RowFault): Promise<unknown> {
  if (!(error instanceof JobError)) {
    return error;
  }
  const row = await badRowError(tools, fault).catch(() => undefined); // the error about the limit matters more
  if (row === undefined) {
    return error;
  }
  return reworded(error, { message: `${error.message}; the last: ${row.message.replace(/^scoring /, "")}` });
}

/** `path`: the shard, as messages name it. */
function explainRow(rejected: RejectedRow, path: string, { contract, kept, nullFeatures }: RejectOptions): JobError {
  const { row, column, value } = rejected;
  const where = `scoring ${path}: row ${row}`;
  const nulls = nullFeatures?.nulls.get(column ?? "");
  const found: Readonly<Record<RejectReason, string>> = {
    null: `${where}, column \`${column}\` is NULL${nulls === undefined ? "" : ` (in ${nullRowsText(nulls, nullFeatures?.rows ?? nulls)} of the input)`}`,
    not_finite: `${where}, column \`${column}\` is ${shorten(value)}, which is not finite`,
    does_not_fit: `${where}, column \`${column}\` is ${shorten(value)}, which ${holderOf(contract, column)} cannot hold`,
    too_long: `${where}, column \`${column}\` is a list of ${value}, more than ${holderOf(contract, column)} takes`,
    unreadable: `${where}: ${value}`,
    expression_failed: `${where}: ${expressionKey(contract, column)} fails: ${value}`,
    prediction_not_finite: `${where}: the model's prediction \`${column}\` is ${value}`,
    model_failed: `${where}: the model fails on it: ${value}`,
    prompt_too_long: `${where}: its prompt is too long: ${value}`,
    answer_refused: `${where}: the model refuses to answer: ${value}`,
    answer_cut_off: `${where}: ${value}`,
    answer_invalid: `${where}: ${value}`,
    target_cannot_hold: `${where}, output column \`${column}\` is ${value}`,
  };
  const input = rejected.reason === "null" ? "correct the input and run the same command again; " : "";
  return new JobError("BAD_ROW", found[rejected.reason], {
    hint: `${input}${remedyOf(rejected, contract)}on_bad_row: reject sets such rows aside. ${kept}`,
  });
}

/** "all 8,831 rows", "12 of 8,831 rows". */
export function nullRowsText(nulls: number, rows: number): string {
  return nulls === rows ? `all ${count(rows, "row")}` : `${showCount(nulls)} of ${count(rows, "row")}`;
}

function expressionKey({ expressions }: Contract, name: string | null): string {
  const expression = expressions?.list.find((one) => one.name === name);
  return expression?.kind === "where" ? "input.where" : `input.columns.${name}`;
}

/** What lets the row be scored after all, where something does: "model.missing: nan …; ". */
function remedyOf({ reason, column, value }: RejectedRow, contract: Contract): string {
  if (reason === "expression_failed") {
    return "correct the expression, or wrap it in try(…), which gives NULL; ";
  }
  if (reason === "target_cannot_hold") {
    return "change the column of the table; ";
  }
  const binding = bindingOf(contract, column);
  if (binding?.kind === "list" && (reason === "null" || reason === "does_not_fit")) {
    return `each row needs a list of ${binding.width} numbers that ${binding.dtype} can hold; `;
  }
  if (binding?.kind === "padded" && reason !== "not_finite") {
    return padRemedy(reason, binding);
  }
  if (binding?.kind === "text" && binding.tokens !== undefined) {
    return reason === "null" ? tokensRemedy(binding.column.name) : "";
  }
  if (binding?.kind === "text" && reason === "does_not_fit") {
    const { name } = binding.column;
    const without = `input.columns: { ${name}: "replace(${name}, chr(0), '')" } takes it out; `;
    return `the character U+0000 would end the text for the model; ${outputName.test(name) ? without : ""}`;
  }
  const takesNaN = binding !== undefined && binding.kind !== "text" && binding.dtype.startsWith("float");
  if (reason === "does_not_fit" && binding?.kind === "matrix" && contract.cast === "exact") {
    const source = binding.columns.find(({ name }) => name === column)?.type;
    // Doubles and decimals are rounded to floats as it is, and integers have nothing to round for an integer.
    const rounds = isIntegerType(source) === takesNaN && binding.dtype !== "bool" && Number.isFinite(Number(value));
    return rounds ? "model.cast: lossy rounds what rounding can fit; " : "";
  }
  if (reason === "null" && takesNaN) {
    return "model.missing: nan scores NULLs as NaN; ";
  }
  return reason === "not_finite" && value?.includes("inf") === false ? "model.missing: nan lets NaN through; " : "";
}

/** A field of a struct cannot be replaced, another column can. */
function tokensRemedy(name: string): string {
  const replaces = outputName.test(name) ? name : "text";
  return `input.columns: { ${replaces}: "coalesce(${name}, '')" } scores NULL as an empty text; `;
}

function padRemedy(reason: RejectReason, { column, dtype, width }: PaddedBinding): string {
  if (reason === "too_long") {
    return `pad.truncate: true scores the first ${width} elements, a higher pad.to more where the model takes them; `;
  }
  if (reason === "null") {
    // A field of a struct, or a name that is none in the spec, cannot be replaced: another column can.
    const name = outputName.test(column.name) ? column.name : "lists";
    const bound = name === column.name ? "" : `, bound under model.inputs in its place,`;
    return `input.columns: { ${name}: "coalesce(${column.name}, [])" }${bound} makes NULL a list of no elements; `;
  }
  const nulls = dtype.startsWith("float") ? ", or NULL with model.missing: nan" : "";
  return reason === "does_not_fit" ? `each element must be a number that ${dtype} can hold${nulls}; ` : "";
}

function isIntegerType(type: ColumnType | undefined): boolean {
  return typeof type === "string" && /^u?int\d/.test(type);
}

function bindingOf({ inputs }: Contract, column: string | null): InputBinding | undefined {
  return inputs.find((binding) => inputColumns(binding).some(({ name }) => name === column));
}

/** "float32", or "float32 [N,64]" for a list. */
function holderOf(contract: Contract, column: string | null): string {
  const binding = bindingOf(contract, column);
  switch (binding?.kind) {
    case undefined:
      return "the model's input";
    case "text":
      return binding.tokens === undefined ? "string" : "a text";
    case "list":
    case "padded":
      return `${binding.dtype} [N,${binding.width}]`;
    case "matrix":
    case "mask":
      return binding.dtype;
    default:
      return assertNever(binding);
  }
}

function shorten(value: string | null): string {
  return value !== null && value.length > 80 ? `${value.slice(0, 77)}…` : String(value);
}

/** Returns the limit of rejects for a run, which counts all of its attempts. */
export function runRejectLimit(
  { max_rejects: limit }: Pick<JobSpec, "max_rejects">,
  { rows, already }: Pick<RejectLimit, "rows" | "already">,
): RejectLimit {
  return { limit, rows, already, shownBy: "`infer-batch rejects` shows the rows of committed spans" };
}

interface RejectBudget {
  readonly count: number;
  /** @throws JobError TOO_MANY_REJECTS */
  readonly spend: () => void;
}

export interface RejectLimit {
  /** A count, or a percentage of the rows ("0.1%"). */
  readonly limit: number | string;
  readonly rows: number;
  /** The number of rows that earlier attempts rejected. */
  readonly already: number;
  /** The part of the hint that names the command which shows the rejected rows. */
  readonly shownBy: string;
}

/**
 * The rows that may be rejected. A percentage is rounded down, but one above 0% allows a row: in a table of 569 rows 0.1%
 * would allow none, and `on_bad_row: reject` would mean nothing.
 */
export function allowedRejects({ limit, rows }: Pick<RejectLimit, "limit" | "rows">): number {
  if (typeof limit === "number") {
    return limit;
  }
  const share = Number.parseFloat(limit) / 100;
  return share === 0 ? 0 : Math.max(1, Math.floor(share * rows));
}

/** @throws JobError TOO_MANY_REJECTS when there are too many already */
export function createRejectBudget({ limit, rows, already, shownBy }: RejectLimit): RejectBudget {
  const allowed = allowedRejects({ limit, rows });
  let rejected = already;
  const check = (): void => {
    if (rejected > allowed) {
      throw new JobError(
        "TOO_MANY_REJECTS",
        `scoring: ${count(rejected, "row")} could not be scored, max_rejects is ${limit}${typeof limit === "number" ? "" : ` of ${rows} rows, ${allowed}`}`,
        { hint: `correct the input, or raise max_rejects; ${shownBy}` },
      );
    }
  };
  check();
  return {
    get count() {
      return rejected;
    },
    spend() {
      rejected += 1;
      check();
    },
  };
}

/** A bad row that ends the run. Its message needs values, which are read from the shard again. */
export class PendingFault extends Error {
  readonly fault: RowFault;

  /** @param cause why the row is not rejected; undefined: `on_bad_row` is fail */
  constructor(fault: RowFault, cause?: unknown) {
    super("a row cannot be scored", { cause });
    this.fault = fault;
  }
}

/** The error that a bad row ends the run with. */
export async function faultError(rejects: RejectOptions, { fault, cause }: PendingFault): Promise<unknown> {
  return cause === undefined ? await badRowError(rejects, fault) : await withRow(rejects, cause, fault);
}
