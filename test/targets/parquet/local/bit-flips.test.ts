import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { nodeFileSystem } from "#src/stores/disk.js";
import { scratch } from "../../../support/job.js";
import { beginDrive, drive, driveFolder, drivePlan, nothingTold, openDriveSink } from "../../../support/sink-drive.js";
import { randomOf } from "../../../support/random.js";
import { torture } from "../../../support/torture.js";

/** Bytes at the end of a plan that hold its seal. */
const sealBytes = 100;

async function written(folder: string, spans?: number): Promise<string> {
  const root = join(folder, "disk");
  await mkdir(root);
  await drive({ root, fs: nodeFileSystem, told: nothingTold(), ...(spans === undefined ? {} : { spans }) });
  return root;
}

async function withEachFlip(path: string, bits: Iterable<number>, look: (bit: number) => Promise<void>): Promise<void> {
  const whole = await readFile(path);
  for (const bit of bits) {
    const flipped = Buffer.from(whole);
    flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    await writeFile(path, flipped);
    await look(bit);
  }
  await writeFile(path, whole);
}

/** "" for success, else the error's code. Throws what is no JobError. */
async function outcomeOf(act: Promise<unknown>): Promise<string> {
  try {
    await act;
    return "";
  } catch (error) {
    if (error instanceof JobError) {
      return error.code;
    }
    throw error;
  }
}

async function partOf(root: string, span: number): Promise<string> {
  const name = (await readdir(driveFolder(root))).find((candidate) => candidate.startsWith(`part-0000${span}.`));
  return join(driveFolder(root), name ?? "there is no such part");
}

test("a plan with any bit changed is refused with 66", { timeout: 600_000 }, async () => {
  const root = await written(scratch.path, 1);
  const plan = join(driveFolder(root), "_infer-batch", drivePlan.runId, "plan.json");
  const { length } = await readFile(plan);
  const sealed = length - sealBytes;
  // In the short form one bit of every third byte that is sealed; all of the seal.
  const bits = Array.from({ length: length * 8 }, (_, bit) => bit).filter(
    (bit) => torture || bit >> 3 >= sealed || ((bit >> 3) % 3 === 0 && (bit & 7) === (bit >> 3) % 8),
  );
  await using sink = await openDriveSink(root, nodeFileSystem);
  const taken: number[] = [];

  await withEachFlip(plan, bits, async (bit) => {
    if ((await outcomeOf(sink.find(drivePlan.runId))) !== "OUTPUT_DAMAGED") {
      taken.push(bit);
    }
  });

  expect(bits.length).toBeGreaterThan(torture ? 5000 : 800);
  expect(taken).toEqual([]);
  expect([...(await beginDrive(sink)).spans.keys()]).toEqual([0]);
});

test("a part with any bit changed is refused or read right by an attempt that resumes its run", async () => {
  const root = await written(scratch.path, 2);
  const part = await partOf(root, 0);
  const { length } = await readFile(part);
  const footer = (await readFile(part)).readUInt32LE(length - 8);
  const random = randomOf(1);
  // All of the trailer, and some of the pages and of the footer.
  const trailer = Array.from({ length: 64 }, (_, bit) => (length - 8) * 8 + bit);
  const anywhere = Array.from({ length: torture ? 150 : 60 }, () => Math.floor(random() * length * 8));
  const outcomes = new Map<number, string>();
  await using sink = await openDriveSink(root, nodeFileSystem);

  await withEachFlip(part, [...trailer, ...anywhere], async (bit) => {
    outcomes.set(bit, await outcomeOf(beginDrive(sink)));
  });

  expect(new Set(outcomes.values())).toEqual(new Set(["", "OUTPUT_DAMAGED"]));
  expect(trailer.filter((bit) => outcomes.get(bit) === "")).toEqual([]);
  const inFooter = anywhere.filter((bit) => bit >> 3 >= length - 8 - footer);
  const found = inFooter.filter((bit) => outcomes.get(bit) !== "");
  console.info(`of ${inFooter.length} bits turned in a part's footer ${found.length} were found`);
  expect(found.length).toBeGreaterThan(inFooter.length / 2);
});

/** docs/faults.md says so: a resumed run reads footers only, and a finished one is checked by names and sizes. */
test("a bit changed in a page of a part is found only by comparing the manifest's digest", async () => {
  const root = await written(scratch.path);
  const part = await partOf(root, 0);

  await withEachFlip(part, [20 * 8], async () => {
    await using sink = await openDriveSink(root, nodeFileSystem);
    expect((await beginDrive(sink)).state.kind).toBe("published");
    const { sha256 } = await nodeFileSystem.digest(part);
    expect(await readFile(join(driveFolder(root), "_manifest.json"), "utf8")).not.toContain(sha256);
  });

  const { sha256 } = await nodeFileSystem.digest(part);
  expect(await readFile(join(driveFolder(root), "_manifest.json"), "utf8")).toContain(sha256);
});
