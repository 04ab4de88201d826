import { mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type FileSystem, ifThere, nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import { type Fence, flush, type Store } from "#src/stores/store.js";
import { JobError, messageOf } from "#src/base/errors.js";
import { scratchFolder } from "../support/job.js";
import { type Fault, type LossyDisk, lossyDisk } from "../support/lossy-disk.js";
import { allLost, anyLuck, bytesLost, type Luck, namesLost } from "../support/luck.js";
import { randomOf } from "../support/random.js";
import { readingCall } from "../support/sink-torture.js";
import { torture } from "../support/torture.js";

/** A store of a folder that exists, and a fence that closes when a later run is opened. */
async function lateStore(fs: Partial<FileSystem> = {}) {
  const scratch = await scratchFolder();
  const root = join(scratch.path, "out");
  await mkdir(root);
  const store = openDiskStore({ root, fs: { ...nodeFileSystem, ...fs }, writer: "late", isDead: () => false });
  let isSuperseded = false;
  const fence: Fence = {
    scope: join(root, "scope"),
    check: async () => {
      if (isSuperseded) {
        throw new JobError("PLAN_CHANGED", "a later run was opened", { hint: "run again" });
      }
    },
    takesBack: () => Promise.resolve(true),
  };
  const supersede = async (): Promise<void> => {
    isSuperseded = true;
    await rm(fence.scope, { recursive: true, force: true });
  };
  return { root, store, fence, supersede, [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose]() };
}

test("a name is not created whose scope was closed and made again, by another late attempt, while it was written", async () => {
  await using late = await lateStore();
  const { root, store, fence } = late;
  const write = async (path: string): Promise<void> => {
    await late.supersede();
    await mkdir(fence.scope);
    await writeFile(path, "rows");
  };
  await expect(store.create(join(root, "part"), write, fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
  expect(await readdir(root, { recursive: true })).toEqual(["scope"]);
});

test("an attempt does not make the folders of its run again that a later run has removed", async () => {
  await using late = await lateStore();
  const { root, store, fence } = late;
  const write = async (path: string): Promise<void> => {
    await late.supersede();
    await writeFile(path, "rows");
  };
  await expect(store.create(join(root, "part"), write, fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
  expect(await readdir(root)).toEqual([]);
});

test("a text that a later run has published since an attempt looked is not removed by it", async () => {
  await using late = await lateStore();
  const { root, store, fence } = late;
  const name = join(root, "text");
  await writeFile(name, "old");
  const check = async (): Promise<void> => {
    await fence.check();
    await late.supersede();
    await writeFile(name, "later");
  };
  await expect(store.update(name, () => undefined, { ...fence, check })).rejects.toMatchObject({
    code: "PLAN_CHANGED",
  });
  expect(await readFile(name, "utf8")).toBe("later");
});

test("nothing is written through a symbolic link below the folder", async () => {
  await using late = await lateStore();
  const { root, store, fence } = late;
  const elsewhere = join(root, "../elsewhere");
  await mkdir(join(elsewhere, "below"), { recursive: true });
  await symlink(elsewhere, join(root, "link"));
  const foreign = { code: "OUTPUT_FOREIGN", message: expect.stringContaining("out/link is a symbolic link") };
  for (const name of [join(root, "link/text"), join(root, "link/below/text")]) {
    await expect(store.create(name, "rows", fence)).rejects.toMatchObject(foreign);
    await expect(store.update(name, () => "text", fence)).rejects.toMatchObject(foreign);
    await expect(store.update(name, () => "text", undefined)).rejects.toMatchObject(foreign);
  }
  expect(await readdir(elsewhere, { recursive: true })).toEqual(["below"]);
});

test("an error of the disk that is not known ends a call, and may pass", async () => {
  const readText = (): Promise<string> => Promise.reject(Object.assign(new Error("stale handle"), { code: "ESTALE" }));
  await using late = await lateStore({ readText });
  const reading = late.store.readText(join(late.root, "text"));
  await expect(reading).rejects.toMatchObject({
    code: "DISK",
    exitCode: 75,
    message: expect.stringContaining("stale"),
  });
});

interface Step {
  readonly what: string;
  /** "no folder": nor is the folder there, nor the one around it. */
  readonly before: "old" | "no folder" | undefined;
  readonly after: "new" | undefined;
  readonly carryOut: (store: Store, out: string) => Promise<unknown>;
}

const fenceIn = (out: string): Fence => ({
  scope: `${out}/scope`,
  check: () => Promise.resolve(),
  takesBack: () => Promise.resolve(true),
});

const steps: readonly Step[] = [
  ...([undefined, "no folder"] as const).map((before) => ({
    what: `create of a text, ${before ?? "in a folder"}`,
    before,
    after: "new" as const,
    carryOut: (store: Store, out: string) => store.create(`${out}/name`, "new", fenceIn(out)),
  })),
  {
    what: "create of a file",
    before: undefined,
    after: "new",
    carryOut: (store, out) => store.create(`${out}/name`, (path) => writeFile(path, "new"), fenceIn(out)),
  },
  ...([undefined, "old"] as const).flatMap((before) =>
    [true, false].map((isFenced) => ({
      what: `update of ${before ?? "no"} text, ${isFenced ? "fenced" : "free"}`,
      before,
      after: "new" as const,
      carryOut: (store: Store, out: string) =>
        store.update(`${out}/name`, () => "new", isFenced ? fenceIn(out) : undefined),
    })),
  ),
  {
    what: "update that removes a text",
    before: "old",
    after: undefined,
    carryOut: (store, out) => store.update(`${out}/name`, () => undefined, fenceIn(out)),
  },
  { what: "remove", before: "old", after: undefined, carryOut: (store, out) => store.remove(out, ["name"]) },
  {
    what: "copy, and a flush",
    before: undefined,
    after: "new",
    async carryOut(store, out) {
      expect(await store.copy(`${out}/from`, `${out}/name`)).toBe("copied");
      await flush(store, out);
    },
  },
];

/** A step on a disk of its own. `attempt` returns what it threw; `found` reads the name. */
async function onDisk<T>(
  { before, carryOut }: Step,
  work: (disk: LossyDisk, attempt: () => Promise<unknown>, found: () => Promise<string | undefined>) => Promise<T>,
): Promise<T> {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "disk");
  const out = join(root, "parent/out");
  await mkdir(before === "no folder" ? root : out, { recursive: true });
  if (before !== "no folder") {
    await writeFile(join(out, "from"), "new");
    await (before === undefined ? undefined : writeFile(join(out, "name"), before));
  }
  const disk = lossyDisk(root);
  await disk.settle();
  const attempt = async (): Promise<unknown> => {
    const store = openDiskStore({ root: out, fs: disk.fs, writer: "host.1.abc", isDead: () => false });
    return await carryOut(store, out).then(
      () => undefined,
      (error: unknown) => error,
    );
  };
  return await work(disk, attempt, () => ifThere(readFile(join(out, "name"), "utf8")));
}

/**
 * Strikes before each call of a step in turn; then power fails, and the step is carried out again.
 * @param next what comes first, before power fails for the last time
 */
async function faultsOf(
  step: Step,
  fault: Fault,
  luckAt: (at: number) => Luck,
  next: "power fails" | "again",
): Promise<string[]> {
  const before = step.before === "no folder" ? undefined : step.before;
  const calls = await onDisk(step, async (disk, attempt) => {
    expect(await attempt()).toBeUndefined();
    return [...disk.calls];
  });
  const ofKind = (call: string): boolean =>
    fault.kind === "short" ? call.startsWith("writeText ") : !readingCall.test(call);
  const faults: string[] = [];
  for (const [at, call] of [...calls.entries()].filter(([, text]) => ofKind(text))) {
    await onDisk(step, async (disk, attempt, found) => {
      disk.faultAt(at, fault);
      const error = await attempt();
      if (fault.kind !== "stop" && error !== undefined) {
        expect(error).toMatchObject({ code: "DISK", exitCode: 75 });
      }
      if (next === "power fails") {
        await disk.losePower(luckAt(at));
      }
      expect(error === undefined ? [step.after] : [before, step.after]).toContain(await found());

      expect(await attempt()).toBeUndefined();
      await disk.losePower(luckAt(at + 1));
      expect(await found()).toBe(step.after);
    }).catch((error: unknown) => faults.push(`${at} ${call}: ${messageOf(error)}`));
  }
  return faults;
}

describe("a call whose disk, process or machine fails at any of its steps", () => {
  const failures: readonly (readonly [string, Fault, (at: number) => Luck])[] = [
    ["power fails, and nothing that was not flushed survives", { kind: "stop" }, () => allLost],
    ["power fails, and names survive without bytes", { kind: "stop" }, () => bytesLost],
    ["power fails, and bytes survive without names", { kind: "stop" }, () => namesLost],
    ...Array.from(
      { length: torture ? 40 : 2 },
      (_, seed) =>
        [
          `power fails, and anything may survive (${seed})`,
          { kind: "stop" },
          (at: number) => anyLuck(randomOf(100 * seed + at)),
        ] as const,
    ),
    ["it reports an error", { kind: "fail", errno: "EIO" }, () => allLost],
    ["it is full in the middle of a text", { kind: "short", errno: "ENOSPC" }, () => allLost],
    ["it reports an error after its work", { kind: "late", errno: "EIO" }, () => allLost],
  ];

  test.each(failures)(
    "it leaves the old text or the new one, what it reported is durable, and it can be repeated: %s",
    async (_, fault, luckAt) => {
      const faults: string[] = [];
      for (const step of steps) {
        // A process that was stopped may be followed by another one before power fails: its faults come late.
        for (const next of fault.kind === "late" ? (["power fails", "again"] as const) : (["power fails"] as const)) {
          faults.push(...(await faultsOf(step, fault, luckAt, next)).map((text) => `${step.what}, ${next}: ${text}`));
        }
      }
      expect(faults).toEqual([]);
    },
  );
});
