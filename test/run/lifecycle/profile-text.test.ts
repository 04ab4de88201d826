import { expect, test } from "vitest";
import type { RunProfile } from "#src/checks/profile/run-profile.js";
import { isRunProfile, parseRunProfile, runProfileText } from "#src/run/lifecycle/profile-text.js";

const profile: RunProfile = {
  runId: "daily-0123456789ab",
  date: "2026-11-20",
  modelSha256: "a".repeat(64),
  rows: 3,
  rejected: 0,
  outputs: new Map([["id", { kind: "rows", type: "int64", rows: 3, nulls: 0 }]]),
  carried: new Map([["ds", { kind: "rows", type: "date", rows: 3, nulls: 0 }]]),
  features: new Map([["weight", { kind: "rows", type: "float32", rows: 3, nulls: 1 }]]),
  slices: new Map(),
  repeated: 0.25,
  isApproved: true,
  model: { uri: "models/a.onnx", version: "7" },
};

test("the text of a run's profile is recognised and read again, and other texts are not", () => {
  const text = runProfileText(profile);
  expect(isRunProfile(text)).toBe(true);
  expect(parseRunProfile(text)).toEqual(profile);
  for (const other of ["", "{}", text.replace('"version":1', '"version":2'), text.slice(1)]) {
    expect(isRunProfile(other)).toBe(false);
    expect(parseRunProfile(other)).toBeUndefined();
  }
});

test("a profile whose columns are not columns is not one", () => {
  const text = runProfileText(profile);
  for (const columns of ['"outputs":{}', '"outputs":[["id"]]', '"outputs":[[1,{}]]']) {
    expect(parseRunProfile(text.replace(/"outputs":\[.*\],"features"/, `${columns},"features"`))).toBeUndefined();
  }
});
