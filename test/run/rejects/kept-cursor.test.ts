import { expect, test } from "vitest";
import { openKeptCursor } from "#src/run/rejects/kept-cursor.js";

test.each(["DISK", "OBJECT_STORE"] as const)("a file of a run that is gone from its target is %s", async (away) => {
  const plan = { runId: "night-1", commitRows: 10, input: { rows: 10 } };
  const run = { committed: new Uint8Array(1), async *spanFiles() {} };
  const rejected = { count: 0, has: () => false };
  await using cursor = openKeptCursor([], { plan, run, reader: {}, rejected, away } as never);
  await expect(cursor.find({ rowStart: 0, rowEnd: 10, present: () => [0] } as never)).rejects.toMatchObject({
    code: away,
    message: "keeping the predictions of run night-1: reading its span 0: it is not there",
  });
});
