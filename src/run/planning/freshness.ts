import type { ColumnRef, Contract } from "../../binding/contract.js";
import type { Column, ColumnType, SourceColumn } from "../../columnar/types.js";
import type { Decoder } from "../../formats/port.js";
import { partitionsOf } from "../../plan/partitions.js";
import type { PlannedShard } from "../../plan/plan.js";
import { logicalDateOf } from "../../publish/published-run.js";
import { instantOf } from "../../report/calls/deadline.js";
import { showDuration } from "../../report/report.js";
import { atKey, type JobContext } from "../../scoring/context.js";
import { type SliceOfRun, windowsAhead } from "../../scoring/read-windows.js";
import { JobError } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";
import { refuseDrift, withTypesOf } from "./drift.js";
import type { SeenShards } from "./read-shards.js";

const dayMs = 86_400_000;
const columnKey = ["input", "freshness", "column"];

/** The length of a unit of each type, in milliseconds. The unit of a date is a day. */
const unitsMs = new Map<ColumnType, number>([
  ["date32", dayMs],
  ["timestamp[us]", 1e-3],
  ["timestamp[ns]", 1e-6],
  ["timestamp[us, UTC]", 1e-3],
]);

/**
 * Compares the newest value of `input.freshness.column` with its limits. It reads that column of all shards.
 * @throws JobError INPUT_NOT_READY for a value older than `error_after`; SPEC_INVALID for a column without dates;
 * SCHEMA_MISMATCH, SHARD_CORRUPT, INPUT_CHANGED
 */
export async function checkFreshness(context: JobContext, decoder: Decoder, seen: SeenShards): Promise<void> {
  const { spec, log } = context;
  const { freshness } = spec.input;
  if (freshness === undefined) {
    return;
  }
  const column = await atKey(context, columnKey, () => Promise.resolve(datedColumn(freshness.column, seen)));
  const newest = await newestValue(context, decoder, { column, shards: seen.shards });
  const reference = referenceOf(context);
  const name = `\`${freshness.column}\``;
  if (newest === undefined) {
    judgeAge(context, Number.POSITIVE_INFINITY, () => `no row of the input has a value in ${name}`);
    return;
  }
  const ms = instantOfValue(newest, column.type, spec.timezone);
  const age = (reference.ms - ms) / 1000;
  const found = `the newest ${name} of the input is ${showValue(newest, column.type)}`;
  const describe = (ageText: string): string => (age > 0 ? `${found}, ${ageText} before ${reference.name}` : found);
  log.debug(describe(showAge(age)));
  judgeAge(context, age, describe);
}

/** Compares an age in seconds with the limits: warns, or throws. `describe`: says what was found, with the age as a text. */
function judgeAge({ spec, log }: JobContext, age: number, describe: (ageText: string) => string): void {
  const { warn_after: warn = Number.POSITIVE_INFINITY, error_after: error = Number.POSITIVE_INFINITY } =
    spec.input.freshness ?? {};
  if (age > error) {
    const show = ageShower(age, error);
    throw new JobError(
      "INPUT_NOT_READY",
      `planning ${spec.name}: ${describe(show(age))}; input.freshness.error_after is ${show(error)}`,
      { hint: "run the same command again when the input is refreshed, or raise input.freshness.error_after" },
    );
  }
  if (age > warn) {
    const show = ageShower(age, warn);
    log.warn(`${describe(show(age))}; input.freshness.warn_after is ${show(warn)}`);
  }
}

/** The column of `input.freshness` in the shards. @throws JobError SPEC_INVALID, SCHEMA_MISMATCH */
function datedColumn(name: string, { schemas, encrypted }: SeenShards): ColumnRef {
  const [first, ...others] = schemas;
  const typed = first === undefined ? undefined : withTypesOf(others, first);
  const columns: readonly SourceColumn[] = typed?.columns ?? [];
  const found = columns.find((column) => column.name === name);
  if (found === undefined) {
    const names = columns.map((column) => column.name);
    throw new JobError("SPEC_INVALID", `there is no column \`${name}\` in ${first?.name}${didYouMean(name, names)}`, {
      hint: "computed columns (input.columns) cannot be used here",
    });
  }
  if (encrypted.has(name)) {
    throw new JobError("SPEC_INVALID", `column \`${name}\` of ${encrypted.get(name)} is encrypted`, {
      hint: "encrypted columns are not supported",
    });
  }
  const { type, partition, sourceType } = found;
  if (type === undefined || !unitsMs.has(type)) {
    throw new JobError("SPEC_INVALID", `column \`${name}\` is ${sourceType}, expected a date or a timestamp`, {
      hint: "for a column of folder names, write its type in input.partitions, such as dt: date",
    });
  }
  const column: ColumnRef = { name, path: [name], type, ...(partition === true ? { partition } : {}) };
  for (const other of schemas) {
    refuseDrift(contractOf(column), typed, other);
  }
  return column;
}

/** Returns a contract that reads one column. */
function contractOf(column: ColumnRef): Contract {
  const passthrough = [{ column: column.name, source: column }];
  const none = { inputs: [], outputs: [], fixedBatchRows: null, expressions: null };
  return { ...none, passthrough, cast: "exact", missing: "bad_row" };
}

interface DatedShards {
  readonly column: ColumnRef;
  readonly shards: readonly PlannedShard[];
}

/** Returns the greatest value in the units of the column's type; undefined: all values are NULL. */
async function newestValue(
  context: JobContext,
  decoder: Decoder,
  { column, shards }: DatedShards,
): Promise<bigint | undefined> {
  if (column.partition === true) {
    const dates = shards.flatMap(({ uri, rows }) =>
      rows > 0 ? [partitionsOf(uri).get(column.name) ?? undefined] : [],
    );
    const newest = dates
      .filter((date) => date !== undefined)
      .toSorted()
      .at(-1);
    return newest === undefined ? undefined : BigInt(Date.parse(`${newest}T00:00:00Z`) / dayMs);
  }
  let newest: bigint | undefined;
  const tools = { source: context.source, decoder, projection: contractOf(column) };
  for await (const window of windowsAhead(tools, wholeShards(shards))) {
    context.signal.throwIfAborted();
    try {
      await window.there;
      for await (const { carried } of decoder.read(window.requests)) {
        newest = maximum(newest, carried[0]);
      }
      for (const shard of window.shards) {
        await shard.check();
      }
    } finally {
      await window.done();
    }
  }
  return newest;
}

/** Yields each shard that has rows, as a group of one. */
function* wholeShards(shards: readonly PlannedShard[]): Generator<readonly SliceOfRun[]> {
  let rowStart = 0;
  for (const shard of shards) {
    if (shard.rows > 0) {
      yield [{ slice: { shard, rowStart: 0, rowEnd: shard.rows }, rowStart }];
    }
    rowStart += shard.rows;
  }
}

function maximum(so: bigint | undefined, column: Column | undefined): bigint | undefined {
  if (column?.kind !== "fixed") {
    throw new Error("expected a fixed column of dates");
  }
  const { data, valid } = column;
  let most: bigint | number | undefined = so;
  for (let row = 0; row < data.length; row += 1) {
    const value = data[row] as bigint | number;
    if ((valid === undefined || valid[row] !== 0) && (most === undefined || value > most)) {
      most = value;
    }
  }
  return most === undefined ? undefined : BigInt(most);
}

/** Returns the instant that ages are measured at: now, or the end of the logical date if that is earlier. */
function referenceOf({ spec, dateParam, dateMs }: JobContext): { readonly ms: number; readonly name: string } {
  const now = dateMs();
  const date = logicalDateOf({ params: spec.params, dateParam: dateParam ?? null });
  const end = date === undefined ? now : instantOf(Date.parse(`${date}T00:00:00Z`) + dayMs, spec.timezone);
  return end < now ? { ms: end, name: `the end of ${date}` } : { ms: now, name: "now" };
}

/**
 * The first and the last instant that can be shown: 0001-01-01 and 9999-12-30. A column's greatest value may be
 * infinite.
 */
const [firstMs, lastMs] = [-62_135_596_800_000, Date.UTC(9999, 11, 30)];

function millisecondsOf(value: bigint, type: ColumnType): number {
  const ms = Number(value) * (unitsMs.get(type) ?? 1);
  return Math.min(Math.max(Math.floor(ms), firstMs), lastMs);
}

/** Returns the instant of a value. A date counts as the end of its day, because its rows belong to that whole day. */
function instantOfValue(value: bigint, type: ColumnType, timezone: string): number {
  const ms = millisecondsOf(value, type);
  return type === "timestamp[us, UTC]" ? ms : instantOf(type === "date32" ? ms + dayMs : ms, timezone);
}

function showValue(value: bigint, type: ColumnType): string {
  const text = new Date(millisecondsOf(value, type)).toISOString();
  return type === "date32"
    ? text.slice(0, 10)
    : `${text.slice(0, 19).replace("T", " ")}${type === "timestamp[us, UTC]" ? " UTC" : ""}`;
}

/** Shows an age: "36 h 10 min", and from two days on "3 days 4 h". */
function showAge(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const rest = seconds - days * 86_400;
  return days < 2 ? showDuration(seconds) : rest < 3600 ? `${days} days` : `${days} days ${Math.floor(rest / 3600)} h`;
}

/** Returns how to show an age and its limit: rounded, unless both would read the same. */
function ageShower(age: number, limit: number): (seconds: number) => string {
  return Number.isFinite(age) && showAge(age) === showAge(limit) ? showExactly : showAge;
}

const longUnits = [
  ["days", dayMs],
  ["h", 3_600_000],
  ["min", 60_000],
] as const;

/** Shows an age to the millisecond: "24 h 1 s", and from two days on "3 days 4 h 2.5 s". */
function showExactly(seconds: number): string {
  let rest = Math.round(seconds * 1000);
  const parts: string[] = [];
  for (const [unit, ms] of rest < 2 * dayMs ? longUnits.slice(1) : longUnits) {
    const count = Math.floor(rest / ms);
    rest -= count * ms;
    parts.push(...(count > 0 ? [`${count} ${unit}`] : []));
  }
  return [...parts, ...(rest > 0 || parts.length === 0 ? [`${rest / 1000} s`] : [])].join(" ");
}
