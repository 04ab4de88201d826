import { expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { type Decision, requireApproved } from "#src/run/lifecycle/lifecycle.js";

const runId = "daily-000000000000" as RunId;
const successor = "daily-000000000000-r2" as RunId;

function decided(kind: Decision["kind"]): Decision {
  const at = "2026-11-23T02:10:00.000Z";
  return { kind, by: "ann", at, reason: null, asBaseline: false, ...(kind === "superseded" ? { successor } : {}) };
}

test("a staged run that was approved may be published", () => {
  expect(() => requireApproved(decided("approved"), runId)).not.toThrow();
});

test.each([
  { what: "not decided", decision: undefined, code: "HELD", said: "it is not approved" },
  { what: "discarded", decision: decided("discarded"), code: "DISCARDED", said: "ann discarded it at 2026-11-23" },
  {
    what: "superseded",
    decision: decided("superseded"),
    code: "PLAN_CHANGED",
    said: `run ${successor} takes its place`,
  },
])("a staged run that is $what is not published", ({ decision, code, said }) => {
  expect(() => requireApproved(decision, runId)).toThrow(
    expect.objectContaining({ code, message: expect.stringContaining(said) }),
  );
});
