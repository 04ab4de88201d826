import { expect, test } from "vitest";
import { type After, publishingAfter } from "#src/targets/after/after.js";
import type { Sink } from "#src/targets/target.js";

test("a target that becomes another one, as a table that is created, has the documents of that one", () => {
  const [before, after] = [{}, {}] as [Sink["ledger"], Sink["ledger"]];
  const [empty, made] = [{ uuid: "" }, { uuid: "u" }] as unknown as [Sink["planTarget"], Sink["planTarget"]];
  let isThere = false;
  const sink = {
    get ledger() {
      return isThere ? after : before;
    },
    get planTarget() {
      return isThere ? made : empty;
    },
  } as Partial<Sink> as Sink;
  const both = publishingAfter(sink, {} as After, () => undefined);
  isThere = true;
  expect(both.ledger).toBe(after);
  expect(both.planTarget).toBe(made);
});
