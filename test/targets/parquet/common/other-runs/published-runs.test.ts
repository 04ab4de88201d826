import { expect, test } from "vitest";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import { findPublished } from "#src/targets/parquet/other-runs.js";
import { JobError } from "#src/base/errors.js";

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

/** Finds the published runs of folders out/2026-11-21 and out/2026-11-22; the first one fails in a call. */
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
  const folders = { root: "", job: ["out", /^.*$/], series: ["out", /^.*$/] };
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
