import { type Contract, outputColumns, scoredColumns } from "../models/binding/contract.js";
import { type ColumnProfile, profileKind } from "../checks/profile/column.js";
import {
  type Aggregates,
  type SpanProfile,
  carriedColumns,
  dividesRows,
  profiledColumns,
} from "../checks/profile/profile.js";
import { type ColumnType, showType } from "../columns/types.js";
import { atKey, type PlacedSpec, type Log, type Queries } from "../flow/context.js";
import { keyColumns } from "../flow/features.js";
import type { OutputCheckSpec } from "../job/jobfile/checks-spec.js";
import { JobError } from "../base/errors.js";
import { didYouMean } from "../base/suggest.js";
import type { Plan } from "./plan/plan.js";

function refused({ where }: PlacedSpec, path: readonly string[], found: string, hint: string): JobError {
  return new JobError("SPEC_INVALID", `reading ${where(["checks", ...path])}: ${found}`, { hint });
}

/**
 * Checks that the output has the columns that `checks` names, with values that can be checked: those of `unique` are
 * output columns whose values can be compared, those of `slices` are copied from the input and can divide rows.
 * @throws JobError SPEC_INVALID
 */
export function requireColumns(job: PlacedSpec, contract: Contract): void {
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
      throw refused(job, ["unique"], found, `the output columns are ${names.join(", ")}`);
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
      throw refused(job, ["slices"], found, hint);
    }
  }
}

/** Forms of the values of whole numbers and of booleans. Any text may be a value of a text column. */
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

/**
 * Checks that the columns of `checks.outputs` are there, and have the values that their limits are about: a limit that
 * nothing is compared with would never hold a run.
 * @throws JobError SPEC_INVALID
 */
function requireOutputs(job: PlacedSpec, contract: Contract): void {
  const { spec } = job;
  const limits = Object.entries(spec.checks?.outputs ?? {});
  const columns = limits.length === 0 ? new Map<string, CheckedColumn>() : checkedColumns(contract, keyColumns(spec));
  for (const [name, given] of limits) {
    const unfitting = (path: readonly string[], what: string, hint: string): JobError =>
      refused(job, ["outputs", name, ...path], what, hint);
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

/** An output column, as far as checks know its values. */
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

/** The first limit that is about values which such a column does not have. */
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
