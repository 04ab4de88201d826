import type { CheckOptions } from "../checks/verdicts/run-profile.js";
import type { Plan } from "../plan/plan.js";
import { defaultChecks } from "../checks/verdicts/run-profile.js";
import type { ChecksSpec } from "../spec/checks-spec.js";

/** The thresholds of a spec, for the verdict on a run. A run that is not staged cannot be held: it only warns. */
export function checkOptionsOf(
  checks: ChecksSpec,
  { staged, params }: Pick<Plan, "staged" | "params">,
  date: string,
): CheckOptions {
  const { on_fail: onFail, rows, rejects, outputs, inputs, expect } = checks;
  return {
    ...defaultChecks,
    onFail: staged ? onFail : "warn",
    rows,
    rejects,
    inputs,
    outputs: new Map(
      Object.entries(outputs).map(([column, { range, in: names, nulls, psi }]) => [
        column,
        {
          ...(range === undefined ? {} : { range }),
          ...(names === undefined ? {} : { in: names }),
          ...(nulls === undefined ? {} : { nulls }),
          ...(psi === undefined ? {} : { psi }),
        },
      ]),
    ),
    expect: expect
      .filter((entry) => Object.entries(entry.params).every(([name, value]) => params[name] === value))
      .map(({ reason, asBaseline }) => ({ date, reason, asBaseline })),
  };
}
