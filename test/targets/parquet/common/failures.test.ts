import { expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { openLedger } from "#src/targets/parquet/ledger.js";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import { toldAt } from "../../../support/told.js";

const readText = (): Promise<never> =>
  Promise.reject(Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" }));

test("what a run has spent is not known where it cannot be read, and the attempt goes on", async () => {
  const store = openDiskStore({ root: "/out", fs: { ...nodeFileSystem, readText }, writer: "w", isDead: () => false });
  const ledger = openLedger(store, "/out");
  expect(await toldAt({ ledger }, "a" as RunId).spending()).toBeUndefined();
});
