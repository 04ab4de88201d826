import { expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { findHistory, findPublished } from "#src/targets/parquet/other-runs.js";
import { sealedText } from "#src/targets/parquet/plan-file.js";
import { JobError } from "#src/base/errors.js";
import { planFor } from "../../../../support/sinks.js";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";

const folders = { root: "", job: ["out", /^.*$/], series: ["out", /^.*$/] };

const idOf = (day: number): RunId => `job-0000000000${day}` as RunId;

/** A folder for each day, as texts by name; the runs of `finished` days have their `_SUCCESS`. Notes which texts are read. */
function lake(days: readonly number[], finished: readonly number[]) {
  const texts = new Map<string, string>();
  for (const day of days) {
    const runId = idOf(day);
    const plan = { ...planFor({ kind: "parquet", uri: "out" }), job: "job", runId, params: { ds: `2026-11-${day}` } };
    const at = `/out/2026-11-${day}`;
    texts.set(`${at}/_infer-batch/run.json`, JSON.stringify({ run_id: runId }));
    texts.set(`${at}/_infer-batch/${runId}/plan.json`, sealedText(plan));
    if (finished.includes(day)) {
      texts.set(`${at}/_SUCCESS`, JSON.stringify({ run_id: runId }));
    }
  }
  const read: string[] = [];
  const store = {
    async readText(name: string) {
      read.push(name.replace(/^.*?-11-/, ""));
      return await Promise.resolve(texts.get(name));
    },
    async list(folder: string) {
      const below = [...texts.keys()].filter((name) => name.startsWith(`${folder}/`));
      const names = new Set(below.map((name) => name.slice(folder.length + 1).split("/")[0] ?? ""));
      return await Promise.resolve([...names].map((name) => ({ name, sizeBytes: undefined })));
    },
    stat: () => Promise.reject(new Error("nothing is looked at")),
  };
  const find = async (own: number): Promise<string[]> => {
    const request = { job: "job", last: 9, unfinishedBut: idOf(own) };
    const runs = await findHistory(store, { folder: `/out/2026-11-${own}`, folders }, request);
    return runs.map(({ runId, status }) => `${runId} ${status}`);
  };
  return { texts, read, store, find };
}

test("the unfinished runs of other folders are found, and of a finished run no more is read than that it is", async () => {
  const { find, read } = lake([20, 21, 22, 23], [20, 21]);
  expect(await find(23)).toEqual([`${idOf(22)} unfinished`]);
  expect(read.filter((name) => name.startsWith("20")).toSorted()).toEqual(["20/_SUCCESS", "20/_infer-batch/run.json"]);
  expect(read.filter((name) => name.startsWith("23"))).toEqual(["23/_infer-batch/run.json"]);
});

test("a later run that is not finished counts, and what it replaced does not", async () => {
  const { find, texts } = lake([20, 23], [20]);
  const later = `${idOf(20)}-r2` as RunId;
  const plan = { ...planFor({ kind: "parquet", uri: "out" }), job: "job", runId: later, params: { ds: "2026-11-20" } };
  texts.set(`/out/2026-11-20/_infer-batch/${later}/late.json`, "{}");
  expect(await find(23)).toEqual([]); // it has notes only, and was never planned
  texts.set(`/out/2026-11-20/_infer-batch/${later}/plan.json`, sealedText(plan));
  expect(await find(23)).toEqual([`${later} unfinished`]);
});

test("a folder that cannot be read hides no unfinished run of another one", async () => {
  const { find, store, texts } = lake([20, 21, 22, 23], []);
  texts.set(`/out/2026-11-21/_infer-batch/${idOf(21)}/plan.json`, "{}");
  const readText = store.readText.bind(store);
  store.readText = async (name) => {
    if (name.includes("-11-20/")) {
      throw new JobError("OBJECT_STORE", `reading ${name}: SlowDown (tried 9 times)`);
    }
    return await readText(name);
  };
  expect(await find(23)).toEqual([`${idOf(22)} unfinished`]);
  store.list = () => Promise.reject(new JobError("OBJECT_STORE", "listing /out: SlowDown (tried 9 times)"));
  expect(await find(23)).toEqual([]);
});

const success = JSON.stringify({ run_id: "churn-1" });
const manifest = JSON.stringify({
  format: "infer-batch-manifest",
  version: 1,
  run_id: "churn-1",
  plan_id: "p",
  job: "churn",
  params: { ds: "2026-11-22" },
  model_sha256: "m",
  rows: 0,
  rows_rejected: 0,
  rows_filtered: 0,
  columns: [],
  parts: [],
  profile: { file: "profile.json", sha256: "s", baseline: true },
});

const errno = (code: string): Error => Object.assign(new Error(code), { code });

async function findWith(failing: string, error: Error): Promise<string[]> {
  const call = async <T>(path: string, result: T): Promise<T> => {
    if (path === failing) {
      throw error;
    }
    return await Promise.resolve(result);
  };
  const fs = {
    readdir: (path: string) => call(path, ["2026-11-21", "2026-11-22"]),
    readText: (path: string) => call(path, path.endsWith("_SUCCESS") ? success : manifest),
  };
  const store = openDiskStore({ root: "/out", fs: { ...nodeFileSystem, ...fs }, writer: "w", isDead: () => false });
  const found = await findPublished(store, { folder: "/out/2026-11-23", folders }, "everywhere");
  return found.flatMap(({ profile }) => profile?.place ?? []);
}

const second = "../2026-11-22/profile.json";

test.each([
  ["/out/2026-11-21/_SUCCESS", errno("EACCES"), [second]],
  ["/out/2026-11-21/_manifest.json", errno("EACCES"), [second]],
  ["/out/2026-11-21/_manifest.json", errno("EISDIR"), [second]],
  ["/out/2026-11-21/_manifest.json", new JobError("PERMISSION", "reading it: access denied"), [second]],
  ["/out", errno("EACCES"), []],
])("a run that this user may not read is not part of the baseline: %s", async (path, error, expected) => {
  expect(await findWith(path, error)).toEqual(expected);
});

test.each(["/out", "/out/2026-11-21/_SUCCESS", "/out/2026-11-21/_manifest.json"])(
  "a disk or store that fails ends the search for a baseline, since a shorter one would let more runs pass: %s",
  async (path) => {
    await expect(findWith(path, errno("EIO"))).rejects.toMatchObject({ code: "DISK" });
    const error = new JobError("OBJECT_STORE", "reading it: SlowDown (tried 9 times)");
    await expect(findWith(path, error)).rejects.toBe(error);
  },
);
