import { expect, test } from "vitest";
import { parsePlan, planToText } from "#src/run/plan/parse-plan.js";
import type { Plan } from "#src/run/plan/plan.js";
import { planOf } from "../../support/plans.js";

const pinned = { runId: "daily-1", date: "2026-11-20", sha256: "a".repeat(64), place: "../dt=2026-11-20" };

test("a plan is read as it was written", () => {
  const planned = planOf([5, 0, 3], 4);
  const plan: Plan = {
    ...planned,
    model: { ...planned.model, version: "7", origin: { runId: "4bf8", tags: { stage: "prod" } } },
    staged: true,
    dateParam: "ds",
    checks: { baseline: [pinned] },
  };
  expect(parsePlan(planToText(plan))).toEqual(plan);
});

test("a plan with tokenizers is read as it was written", () => {
  const planned = planOf([5], 4);
  const column = { name: "body", path: ["body"], type: "utf8" } as const;
  const tokens = {
    tokenizer: "b".repeat(64),
    dtype: "int64",
    width: 32,
    cut: "right",
    value: 0,
    side: "left",
    shrink: true,
    sorted: true,
    masks: [{ input: "mask", dtype: "int64" }],
    types: [],
  } as const;
  const plan: Plan = {
    ...planned,
    model: {
      ...planned.model,
      tokenizers: [{ uri: "hf://org/repo/tokenizer.json", sha256: "b".repeat(64), version: "1f" }],
    },
    contract: { ...planned.contract, inputs: [{ kind: "text", input: "ids", rank: 1, column, tokens }] },
    request: {
      ...planned.request,
      inputs: {
        ids: { tokenize: "body", tokenizer: "hf://org/repo/tokenizer.json", max: 32, shrink: true },
        mask: { mask_of: "ids" },
        kinds: { types_of: "ids" },
      },
    },
  };
  expect(parsePlan(planToText(plan))).toEqual(plan);
});

test.each([
  ["without one of its fields", { staged: undefined }],
  ["with a field of another version", { profiles: 2 }],
  ["of a later version", { version: 2 }],
])("a plan %s is none that this program can read", (_, change) => {
  expect(parsePlan(JSON.stringify({ ...planOf([5], 4), ...change }))).toBeUndefined();
});
