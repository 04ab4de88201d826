import type { Limits } from "../checks/check.js";
import type { Plan } from "../plan/plan.js";
import type { ChecksSpec } from "../spec/checks-spec.js";

/** The limits of a spec, for the verdict on a run. A run that is not staged cannot be held: it only warns. */
export function limitsOf(checks: ChecksSpec, { staged, params }: Pick<Plan, "staged" | "params">): Limits {
  const { on_fail: onFail, factor, rejects, outputs, inputs, expect } = checks;
  const expected = expect.find((entry) =>
    Object.entries(entry.params).every(([name, value]) => params[name] === value),
  );
  return {
    onFail: staged ? onFail : "warn",
    factor,
    rejects,
    outputs: new Map(
      Object.entries(outputs).map(([column, wanted]) =>
        wanted === "ignore"
          ? [column, factorOf(wanted)]
          : [column, { range: wanted.range, in: wanted.in, nulls: wanted.nulls, ...factorOf(wanted.factor) }],
      ),
    ),
    inputs: new Map(
      Object.entries(inputs).map(([column, wanted]) => [
        column,
        factorOf(wanted === "ignore" ? wanted : wanted.factor),
      ]),
    ),
    expected: expected && { reason: expected.reason, asBaseline: expected.asBaseline },
  };
}

function factorOf(wanted: number | "ignore" | undefined): { readonly factor?: number } {
  return wanted === undefined ? {} : { factor: wanted === "ignore" ? Number.POSITIVE_INFINITY : wanted };
}
