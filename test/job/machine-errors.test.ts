import { expect, test } from "vitest";
import { finalError } from "#src/job/machine.js";
import { JobError } from "#src/base/errors.js";

function failsToClose(): AsyncDisposable {
  return { [Symbol.asyncDispose]: () => Promise.reject(new Error("closing failed")) };
}

test("a command ends with its first error, even if closing a resource fails after that", async () => {
  const first = new JobError("PERMISSION", "spooling to /spool: it cannot be written to");
  const thrown: unknown = await (async () => {
    await using outer = failsToClose();
    await using inner = failsToClose();
    throw outer === inner ? undefined : first;
  })().catch((error: unknown) => error);
  expect(thrown).not.toBe(first);
  expect(finalError(thrown)).toBe(first);
  expect(finalError(first)).toBe(first);
});
