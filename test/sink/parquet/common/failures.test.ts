import { expect, test } from "vitest";
import type { Layout } from "#src/sink/parquet/common/layout.js";
import { attemptNotes } from "#src/sink/parquet/common/failures.js";

test("what a run has spent is not known where it cannot be read, and the attempt goes on", async () => {
  const fs = { readText: () => Promise.reject(Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" })) };
  const { recordedSpending } = attemptNotes(
    { fs: fs as never, layout: { errors: "errors.json", spending: "spending.json" } as Layout },
    { guarded: (_, work) => work(), smallFiles: () => ({}) as never, isDead: () => false, away: undefined },
    { writer: "w", committed: new Uint8Array(1) },
  );
  expect(await recordedSpending?.()).toBeUndefined();
});
