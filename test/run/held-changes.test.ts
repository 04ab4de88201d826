import { cp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { changesSince } from "#src/run/conclude.js";
import { shiftedBy } from "../support/challenger.js";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, nightlyJob } from "../support/nights.js";

/** What is said of the model, and the pins with which it was looked for, where the input is in a store. */
async function modelChangesOf(model: object): Promise<{ changes: readonly string[]; asked: unknown[] }> {
  const asked: unknown[] = [];
  const plan = { model: { sha256: "a".repeat(64) }, input: { rows: 1, shards: [{ uri: "s3://lake/a.parquet" }] } };
  const context = {
    spec: { model },
    signal: new AbortController().signal,
    log: { debug: (text: string) => expect.fail(text) },
    source: { list: () => expect.fail("the store was asked") },
    resolveModel(pin: unknown) {
      asked.push(pin);
      return Promise.resolve({ model: { sha256: "b".repeat(64) } });
    },
  };
  const run = { state: { kind: "scoring" } };
  const { files } = await changesSince(context as never, { ...plan, commitRows: 1 } as never, run as never);
  return { changes: files, asked };
}

test.each(["s3://models/a.onnx", "models:/churn/7", "https://example.org/a.onnx", "hf://org/repo@1/a.onnx"])(
  "the model and the input of a held run are not looked for where that asks a store or a registry: %s",
  async (path) => {
    expect(await modelChangesOf({ path })).toEqual({ changes: [], asked: [] });
  },
);

test("the model of a held run is looked for as that of a plan, and not if the spec pins a digest or names a server", async () => {
  expect(await modelChangesOf({ path: "a.onnx" })).toEqual({
    changes: [
      expect.stringMatching(/^the model has changed .* sha256 bbbbbbbbbbbb…, planned aaaaaaaaaaaa…\): run --new-run/),
    ],
    asked: [{ sha256: "a".repeat(64) }],
  });
  expect(await modelChangesOf({ path: "a.onnx", sha256: "a".repeat(64) })).toEqual({ changes: [], asked: [] });
  const server = { protocol: "v2", url: "http://127.0.0.1:1", model: "a" };
  expect(await modelChangesOf({ server })).toEqual({ changes: [], asked: [] });
});

const limitsChanged = "the limits in the spec are not those of this verdict";
const specChanged = "the spec has changed since this run was planned";
const inputChanged = "the input has changed since this run was planned";

test("run and plan of a held run say that the spec has changed since its verdict, and nothing if it has not", async () => {
  const nights = await nightlyJob(scratch.path);
  await heldNight(nights);
  const told = async (command: string, overrides: object): Promise<string> => {
    await nights.rewrite({ ...fewRows, ...overrides });
    const { code, stderr } = await nights.night(command, "2026-11-21");
    expect(code).toBe(67);
    return stderr;
  };
  expect(await told("run", {})).not.toMatch(/since this run|not those of this verdict/);
  expect(await told("run", { checks: { factor: 5, outputs: { predict: { factor: 2 } } } })).toContain(
    `\n  ${limitsChanged} (checks.factor, checks.outputs): run --new-run applies them\n`,
  );
  expect(await told("plan", { checks: { on_fail: "warn", unique: ["id"] } })).toContain(
    `\n  ${limitsChanged} (checks.on_fail, checks.unique): run --new-run applies them\n`,
  );
  expect(await told("run", { checks: undefined })).toContain(
    `\n  ${specChanged} (checks is "absent", planned "present"): run --new-run applies it`,
  );
  expect(await told("run", { checks: { slices: ["id"] }, input: { where: "id < 90" } })).toMatch(
    /the spec has changed since this run was planned \(input\.where is "id < 90", planned "id < 50"; checks\.slices .*\): run --new-run applies it\n/,
  );
});

test("run and plan of a held run say that the model, a file, is another one, and nothing if it is gone", async () => {
  const model = join(scratch.path, "model.onnx");
  const nights = await nightlyJob(scratch.path, { model: { path: "model.onnx" } }, "cancer-logistic");
  await writeFile(model, await shiftedBy(0));
  await heldNight(nights);
  const modelChanged =
    /\n {2}the model has changed since this run was planned \(\S*(?:model|other)\.onnx: sha256 [0-9a-f]{12}…, planned [0-9a-f]{12}…\): run --new-run scores with it\n/;
  const told = async (command = "run"): Promise<string> => {
    const { code, stderr } = await nights.night(command, "2026-11-21");
    expect(code).toBe(67);
    return stderr;
  };
  expect(await told()).not.toMatch(/the model has changed/);
  await writeFile(model, await shiftedBy(0.5));
  expect(await told()).toMatch(modelChanged);
  expect(await told("plan")).toMatch(modelChanged);
  await rm(model);
  expect(await told()).not.toMatch(/the model has changed/);
  await writeFile(join(scratch.path, "other.onnx"), await shiftedBy(0.5));
  await nights.rewrite({ ...fewRows, model: { path: "other.onnx" } });
  expect(await told()).toMatch(modelChanged);
});

test("run and plan of a held run say that files were added, replaced or removed, and nothing if the input is gone", async () => {
  const data = join(scratch.path, "data");
  await cp(join(projectFolder, "fixtures/data/diabetes"), data, { recursive: true });
  const input = { path: "data/*.parquet" };
  const nights = await nightlyJob(scratch.path, { input });
  const first = (await readdir(data)).find((name) => name.endsWith(".parquet")) ?? expect.fail();
  expect((await nights.night("run", "2026-11-20")).code).toBe(0);
  await nights.rewrite({ input: { ...input, ...fewRows.input } });
  const told = async (): Promise<string> => {
    const { code, stderr } = await nights.night("run", "2026-11-21");
    expect(code).toBe(67);
    return stderr;
  };
  expect(await told()).not.toContain(inputChanged);
  await cp(join(data, first), join(data, "x1.parquet"));
  await cp(join(data, first), join(data, "x2.parquet"));
  expect(await told()).toContain(`\n  ${inputChanged} (2 files were added): run --new-run scores it\n`);
  const planned = await nights.night("plan", "2026-11-21");
  expect([planned.code, planned.stderr]).toEqual([67, expect.stringContaining(`${inputChanged} (2 files were added)`)]);
  await rm(join(data, first));
  expect(await told()).toContain(`\n  ${inputChanged} (2 files were added, 1 file was removed)`);
  await rm(data, { recursive: true });
  expect(await told()).not.toContain(inputChanged);
});
