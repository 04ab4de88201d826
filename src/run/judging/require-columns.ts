import { type Contract, outputColumns } from "../../binding/contract.js";
import { type ColumnProfile, profileKind } from "../../checks/profile/column.js";
import { carriedColumns, profiledColumns } from "../../checks/profile/profile.js";
import { type ColumnType, showType } from "../../columnar/types.js";
import type { JobContext } from "../../scoring/context.js";
import { keyColumns } from "../../scoring/features.js";
import type { OutputCheckSpec } from "../../spec/checks-spec.js";
import { JobError } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";
import { requireSlices } from "../slices.js";

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

/** An output column, as far as checks know its values. */
interface CheckedColumn {
  readonly type: ColumnType;
  /** undefined: nothing is known of the column, because it comes after others. */
  readonly kind: ColumnProfile["kind"] | undefined;
  /** Why a limit cannot be checked, in messages. */
  readonly about: string;
}

/**
 * Checks that the columns of `checks.outputs` are there, and have the values that their limits are about: a limit that
 * nothing is compared with would never hold a run.
 * @throws JobError SPEC_INVALID
 */
function requireOutputs({ spec, where }: Pick<JobContext, "spec" | "where">, contract: Contract): void {
  const limits = Object.entries(spec.checks?.outputs ?? {});
  const columns = limits.length === 0 ? new Map<string, CheckedColumn>() : checkedColumns(contract, keyColumns(spec));
  for (const [name, given] of limits) {
    const wanted = given === "ignore" ? {} : given;
    const found = columns.get(name);
    const unfit = found === undefined ? undefined : limitWithoutValues(wanted, found);
    requireValues({ where }, { name, values: wanted.in, found });
    if (found === undefined || unfit !== undefined) {
      const names = [...columns.keys()];
      const [what, hint] =
        found === undefined || unfit === undefined
          ? [`there is no output column \`${name}\`${didYouMean(name, names)}`, `the columns are ${names.join(", ")}`]
          : [`\`${unfit}\` cannot be checked of \`${name}\`, which ${found.about}`, hints[unfit]];
      throw new JobError("SPEC_INVALID", `reading ${where(["checks", "outputs", name])}: ${what}`, { hint });
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

/** Refuses a list of values of which the column can never have one. @throws JobError SPEC_INVALID */
function requireValues(
  { where }: Pick<JobContext, "where">,
  {
    name,
    values = [],
    found,
  }: {
    readonly name: string;
    readonly values?: readonly string[] | undefined;
    readonly found: CheckedColumn | undefined;
  },
): void {
  const type = found?.type;
  const known = type === undefined ? undefined : valueForms.find(({ of }) => of(showType(type)));
  const strange = known && values.find((value) => !known.form.test(value));
  if (type !== undefined && strange !== undefined) {
    throw new JobError(
      "SPEC_INVALID",
      `reading ${where(["checks", "outputs", name, "in"])}: ${strange} is no ${known?.what}, and \`${name}\` is ${showType(type)}`,
      { hint: `list values that \`${name}\` may have` },
    );
  }
  const large = found?.kind === "numbers" ? values.find((value) => Math.abs(Number(value)) >= exactNumbers) : undefined;
  if (large !== undefined) {
    throw new JobError(
      "SPEC_INVALID",
      `reading ${where(["checks", "outputs", name, "in"])}: ${large} is too large: numbers from ${exactNumbers} on are not counted one by one`,
      { hint: `write a condition of checks.sql: bad: count(case when "${name}" not in (…) then 1 end) = 0` },
    );
  }
}

/** The output columns by name. */
function checkedColumns(
  { outputs, passthrough }: Pick<Contract, "outputs" | "passthrough">,
  keys: ReadonlySet<string>,
): Map<string, CheckedColumn> {
  const columns = new Map<string, CheckedColumn>();
  for (const [index, { column, source }] of passthrough.entries()) {
    const { type } = source;
    columns.set(
      column,
      index < carriedColumns
        ? { type, kind: "rows", about: "comes from the input as it is" }
        : { type, kind: undefined, about: `is not one of the first ${carriedColumns} columns from the input` },
    );
  }
  for (const [index, { column, type }] of outputs.entries()) {
    const isKey = keys.has(column);
    const about = isKey ? "is a key, whose values are not profiled" : `is ${showType(type)}`;
    columns.set(
      column,
      index < profiledColumns
        ? { type, kind: profileKind({ type, isKey }), about }
        : { type, kind: undefined, about: `is not one of the first ${profiledColumns} predicted columns` },
    );
  }
  return columns;
}

const hints = {
  range: "range is for predictions that are numbers; checks.sql takes conditions of other columns",
  in: "in is for predictions that are texts, whole numbers or booleans; checks.sql takes conditions of other columns",
  nulls: "name the column before others in model.outputs or output.columns",
} as const;

/** The first limit that is about values which such a column does not have. */
function limitWithoutValues(
  { range, in: values, nulls }: OutputCheckSpec,
  { type, kind }: CheckedColumn,
): keyof typeof hints | undefined {
  if (range !== undefined && kind !== "numbers") {
    return "range";
  }
  if (values !== undefined && kind !== "values" && !(kind === "numbers" && isWholeType(showType(type)))) {
    return "in";
  }
  return nulls !== undefined && kind === undefined ? "nulls" : undefined;
}

/** Whether a type, as profiles name it, is one of whole numbers. */
function isWholeType(type: string): boolean {
  return /^u?int\d/.test(type);
}
