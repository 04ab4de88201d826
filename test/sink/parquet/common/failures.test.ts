import { expect, test } from "vitest";
import type { Layout } from "#src/sink/parquet/layout.js";
import { attemptNotes } from "#src/sink/parquet/notes.js";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";

const readText = (): Promise<never> =>
  Promise.reject(Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" }));

test("what a run has spent is not known where it cannot be read, and the attempt goes on", async () => {
  const store = openDiskStore({ root: "/out", fs: { ...nodeFileSystem, readText }, writer: "w", isDead: () => false });
  const layout = { errors: "errors.json", spending: "spending.json" } as Layout;
  const { recordedSpending } = attemptNotes(store, layout, {
    writer: "w",
    committed: new Uint8Array(1),
    isDead: () => false,
  });
  expect(await recordedSpending?.()).toBeUndefined();
});
