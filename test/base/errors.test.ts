import { expect, test } from "vitest";
import { JobError, reworded } from "#src/base/errors.js";

const cause = new Error("the cause");
const damage = { runId: "daily-0123456789ab", found: ["a part is gone"] };
const error = new JobError("OUTPUT_DAMAGED", "reading out: a part is gone", { hint: "restore it", cause, damage });

test.each([
  [{}, { message: "reading out: a part is gone", hint: "restore it" }],
  [{ hint: "start over" }, { message: "reading out: a part is gone", hint: "start over" }],
  [{ message: "opening it" }, { message: "opening it", hint: "restore it" }],
  [{ hint: undefined }, { message: "reading out: a part is gone", hint: undefined }],
])("a reworded error keeps its code, damage and cause: %o", (texts, expected) => {
  const other = reworded(error, texts);
  expect(other).toBeInstanceOf(JobError);
  expect(other).toMatchObject({ ...expected, code: "OUTPUT_DAMAGED", exitCode: 66, damage, cause });
});

test("a reworded error without a cause has none", () => {
  expect("cause" in reworded(new JobError("USAGE", "reading it"), { hint: "name it" })).toBe(false);
});
