import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { openTuneCache } from "#src/app/caches/tune-cache.js";
import { scratchFolder } from "../../support/job.js";
import { load, minimalSpec } from "../../support/spec.js";

afterEach(() => {
  vi.unstubAllEnvs();
});

const known = {
  measuredAt: "2026-11-22T00:00:00.000Z",
  tuning: [{ sessions: 2, threads: 1, batchRows: 64, rowsPerSecond: 1000 }],
};

test("a cached measurement is used for the same model and bindings only", async () => {
  await using scratch = await scratchFolder();
  vi.stubEnv("XDG_CACHE_HOME", scratch.path);
  const spec = load(minimalSpec);
  expect(await openTuneCache(spec, "a").read()).toBeUndefined();

  await openTuneCache(spec, "a").write(known);

  expect(await openTuneCache(spec, "a").read()).toEqual(known);
  expect(await openTuneCache(spec, "b").read()).toBeUndefined();
  const elsewhere = load(minimalSpec.replace("model.onnx", "models/churn.onnx"));
  expect(await openTuneCache(elsewhere, "a").read()).toEqual(known);
  const bound = load(minimalSpec.replace("model.onnx", "model.onnx\n  missing: nan"));
  expect(await openTuneCache(bound, "a").read()).toBeUndefined();
});

test("a cache file that has no measurement is ignored, and the model is measured again", async () => {
  await using scratch = await scratchFolder();
  vi.stubEnv("XDG_CACHE_HOME", scratch.path);
  const cache = openTuneCache(load(minimalSpec), "a");
  await cache.write(known);
  const folder = join(scratch.path, "infer-batch/tune");
  const [name = "", ...others] = await readdir(folder);
  expect(others).toEqual([]);
  for (const text of ["", "{}", JSON.stringify({ ...known, tuning: [] })]) {
    await writeFile(join(folder, name), text);
    expect(await cache.read()).toBeUndefined();
  }
});
