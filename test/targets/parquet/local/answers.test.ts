import { mkdir, readdir, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodeFileSystem } from "#src/stores/disk.js";
import type { LoggedAnswer } from "#src/stores/ledger.js";
import { answersIn, answersOf, inOrder } from "../../../support/answers-contract.js";
import { scratch } from "../../../support/job.js";
import { beginDrive, driveFolder, drivePlan, openDriveSink } from "../../../support/sink-drive.js";
import { torture } from "../../../support/torture.js";

const keeps = [answersOf(1, 2), answersOf(3), answersOf(4, 5)];

async function fileOf(root: string): Promise<{ path: string; bytes: Buffer; read: () => Promise<LoggedAnswer[]> }> {
  await mkdir(root, { recursive: true });
  await using sink = await openDriveSink(root, nodeFileSystem);
  const kept = (await beginDrive(sink)).answers();
  await kept.keep(keeps.flat());
  const folder = join(driveFolder(root), "_infer-batch", drivePlan.runId, "answers");
  const path = join(folder, (await readdir(folder)).join());
  return { path, bytes: await readFile(path), read: () => answersIn(kept) };
}

describe("a damaged file of answers", () => {
  test("the answers before the byte at which a file is cut off are read, for every such byte", async () => {
    const { path, bytes, read } = await fileOf(join(scratch.path, "disk"));
    const order = keeps.flat();
    for (let length = bytes.length; length >= 0; length -= torture ? 1 : 7) {
      await truncate(path, length);
      const whole = bytes.subarray(0, length).toString().split("\n").length - 1;
      expect(await read()).toEqual(inOrder(order.slice(0, whole)));
    }
  });

  test("an answer with any bit changed is left out, and those in other lines are read", async () => {
    const { path, bytes, read } = await fileOf(join(scratch.path, "disk"));
    const lines = bytes.toString().split("\n");
    let start = 0;
    const lineAt = (at: number): number => bytes.subarray(0, at).toString().split("\n").length - 1;
    for (let bit = 0; bit < bytes.length * 8; bit += torture ? 1 : 13) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      await writeFile(path, flipped);
      const line = lineAt(bit >> 3);
      const joined = bytes[bit >> 3] === 10 ? [line, line + 1] : [line];
      const expected = keeps.flat().filter((_, index) => !joined.includes(index));
      expect(await read()).toEqual(inOrder(expected));
      start += 1;
    }
    expect(lines).toHaveLength(6);
    expect(start).toBeGreaterThan(100);
  });
});
