import { type Contract, outputColumns, scoredColumns } from "../binding/contract.js";
import { type ColumnProfile, profileKind } from "../checks/profile/column.js";
import {
  type Aggregates,
  type SpanProfile,
  carriedColumns,
  dividesRows,
  profiledColumns,
} from "../checks/profile/profile.js";
import { type ColumnType, showType } from "../columnar/types.js";
import { type JobContext, atKey } from "../scoring/context.js";
import { keyColumns } from "../scoring/features.js";
import type { OutputCheckSpec } from "../spec/checks-spec.js";
import { JobError } from "../util/errors.js";
import { didYouMean } from "../util/suggest.js";
import type { Plan } from "../plan/plan.js";

/**
 * Checks that the output has the columns that `checks` names, with values that can be checked.
 * @throws JobError SPEC_INVALID
 */
export function requireColumns(context: Pick<JobContext, "spec" | "where">, contract: Contract): void {
  requireKey(context, contract);
  requireOutputs(context, contract);
  requireSlices(context, contract);
}

/**
 * Checks that the columns of `checks.unique` are output columns whose values can be compared.
 * @throws JobError SPEC_INVALID
 */
function requireKey({ spec, where }: Pick<JobContext, "spec" | "where">, contract: Contract): void {
  const columns = outputColumns(contract);
  for (const name of spec.checks?.unique ?? []) {
    const type = columns.find((column) => column.name === name)?.type;
    if (type === undefined || (typeof type === "object" && type.kind !== "decimal")) {
      const names = columns.map((column) => column.name);
      const found =
        type === undefined
          ? `there is no output column \`${name}\`${didYouMean(name, names)}`
          : `\`${name}\` is ${showType(type)}, which cannot be part of a key`;
      throw new JobError("SPEC_INVALID", `reading ${where(["checks", "unique"])}: ${found}`, {
        hint: `the output columns are ${names.join(", ")}`,
      });
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
function requireOutputs({ spec, where }: Pick<JobContext, "spec" | "where">, contract: Contract): void {
  const limits = Object.entries(spec.checks?.outputs ?? {});
  const columns = limits.length === 0 ? new Map<string, CheckedColumn>() : checkedColumns(contract, keyColumns(spec));
  for (const [name, given] of limits) {
    const refused = (path: readonly string[], what: string, hint: string): JobError =>
      new JobError("SPEC_INVALID", `reading ${where(["checks", "outputs", name, ...path])}: ${what}`, { hint });
    const column = columns.get(name);
    if (column === undefined) {
      const names = [...columns.keys()];
      const what = `there is no output column \`${name}\`${didYouMean(name, names)}`;
      throw refused([], what, `the columns are ${names.join(", ")}`);
    }
    const wanted = given === "ignore" ? {} : given;
    const type = showType(column.type);
    const unfit = limitWithoutValues(wanted, { type, kind: column.kind });
    if (unfit !== undefined) {
      throw refused([], `\`${unfit}\` cannot be checked of \`${name}\`, which ${column.about}`, hints[unfit]);
    }
    const values = wanted.in ?? [];
    const known = valueForms.find(({ of }) => of(type));
    const strange = known && values.find((value) => !known.form.test(value));
    if (strange !== undefined) {
      const what = `${strange} is no ${known?.what}, and \`${name}\` is ${type}`;
      throw refused(["in"], what, `list values that \`${name}\` may have`);
    }
    const large = isWholeType(type) && values.find((value) => Math.abs(Number(value)) >= exactNumbers);
    if (typeof large === "string") {
      const what = `${large} is too large: numbers from ${exactNumbers} on are not counted one by one`;
      const condition = `bad: count(case when "${name}" not in (…) then 1 end) = 0`;
      throw refused(["in"], what, `write a condition of checks.sql: ${condition}`);
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

/** The output columns by name. */
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

/** Whether a type, as profiles name it, is one of whole numbers. */
function isWholeType(type: string): boolean {
  return /^u?int\d/.test(type);
}

/**
 * Checks that the columns of `checks.slices` are copied from the input and have values that can divide rows.
 * @throws JobError SPEC_INVALID
 */
function requireSlices({ spec, where }: Pick<JobContext, "spec" | "where">, { passthrough }: Contract): void {
  const names = passthrough.map(({ column }) => column);
  for (const name of spec.checks?.slices ?? []) {
    const type = passthrough.find(({ column }) => column === name)?.source.type;
    if (type === undefined || !dividesRows(type)) {
      const found =
        type === undefined
          ? `there is no column \`${name}\` in output.columns${didYouMean(name, names)}`
          : `\`${name}\` is ${showType(type)}, expected a text, an integer or a boolean`;
      throw new JobError("SPEC_INVALID", `reading ${where(["checks", "slices"])}: ${found}`, {
        hint: "slices are made by the values of columns that are copied from the input to the output",
      });
    }
  }
}

/** Warns of columns of `checks.slices` that have too many values in this run. */
export function warnOfSlices({ log }: Pick<JobContext, "log">, { slices }: SpanProfile): void {
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
  context: Pick<JobContext, "where" | "openAggregates">,
  { contract, checks }: Pick<Plan, "contract"> & { readonly checks: Pick<NonNullable<Plan["checks"]>, "sql"> | null },
): Promise<Aggregates | undefined> {
  const sql = checks?.sql;
  return sql === undefined
    ? undefined
    : await atKey(context, ["checks", "sql"], () => context.openAggregates(sql, scoredColumns(contract)));
}
