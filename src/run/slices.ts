import type { Contract } from "../binding/contract.js";
import { dividesRows, type SpanProfile } from "../checks/profile/profile.js";
import { showType } from "../columnar/types.js";
import type { JobContext } from "../scoring/context.js";
import { JobError } from "../util/errors.js";
import { didYouMean } from "../util/suggest.js";

/**
 * Checks that the columns of `checks.slices` are copied from the input and have values that can divide rows.
 * @throws JobError SPEC_INVALID
 */
export function requireSlices({ spec, where }: Pick<JobContext, "spec" | "where">, { passthrough }: Contract): void {
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
