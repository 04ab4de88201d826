import type { Contract } from "../../binding/contract.js";
import { type ColumnProfile, profiledColumns, profileKind } from "../../checks/profiles/column-profile.js";
import { carriedColumns } from "../../checks/span-profile.js";
import { isWholeType } from "../../checks/verdicts/value-checks.js";
import { type ColumnType, showType } from "../../columnar/types.js";
import type { JobContext } from "../../scoring/context.js";
import { keyColumns } from "../../scoring/features.js";
import type { OutputCheckSpec } from "../../spec/checks-spec.js";
import { JobError } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";

/** An output column, as far as checks know its values. */
interface CheckedColumn {
  readonly type: ColumnType;
  readonly kind: ColumnProfile["kind"];
  /** What explains the kind "rows", in messages. */
  readonly about: string;
}

/**
 * Checks that the columns of `checks.outputs` are there, and have the values that their limits are about: a limit that
 * nothing is compared with would never hold a run.
 * @throws JobError SPEC_INVALID
 */
export function requireOutputs({ spec, where }: Pick<JobContext, "spec" | "where">, contract: Contract): void {
  const limits = Object.entries(spec.checks?.outputs ?? {});
  const columns = limits.length === 0 ? new Map<string, CheckedColumn>() : checkedColumns(contract, keyColumns(spec));
  for (const [name, wanted] of limits) {
    const found = columns.get(name);
    const unfit = found === undefined ? undefined : limitWithoutValues(wanted, found);
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

/** The output columns that are profiled, by name. */
function checkedColumns(
  { outputs, passthrough }: Pick<Contract, "outputs" | "passthrough">,
  keys: ReadonlySet<string>,
): Map<string, CheckedColumn> {
  const carried = passthrough.slice(0, carriedColumns).map(({ column, source: { type } }) => {
    return [column, { type, kind: "rows", about: "comes from the input as it is" }] as const;
  });
  const predicted = outputs.slice(0, profiledColumns).map(({ column, type }) => {
    const isKey = keys.has(column);
    const about = isKey ? "is a key, whose values are not profiled" : `is ${showType(type)}`;
    return [column, { type, kind: profileKind({ type, isKey }), about }] as const;
  });
  return new Map<string, CheckedColumn>([...carried, ...predicted]);
}

const hints = {
  range: "range is for predictions that are numbers; checks.sql takes conditions of other columns",
  in: "in is for predictions that are texts, whole numbers or booleans; checks.sql takes conditions of other columns",
  psi: "psi is for predictions that are numbers, texts, booleans, or lists of them",
} as const;

/** The first limit that is about values which such a column does not have. */
function limitWithoutValues(
  { range, in: values, psi }: OutputCheckSpec,
  { type, kind }: CheckedColumn,
): keyof typeof hints | undefined {
  if (range !== undefined && kind !== "numbers") {
    return "range";
  }
  if (values !== undefined && kind !== "values" && !(kind === "numbers" && isWholeType(showType(type)))) {
    return "in";
  }
  return psi !== undefined && kind === "rows" ? "psi" : undefined;
}
