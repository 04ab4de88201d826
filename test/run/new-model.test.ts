import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { outputs, shiftedBy } from "../support/challenger.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";

/** So that the outputs are compared as closely after one night as after many. */
const checks = { factor: 0.1 };

interface Ended {
  readonly code: number | null;
  readonly stderr: string;
  readonly runId: string;
  /** Lines of the verdict about `p`. */
  readonly lines: readonly string[];
  readonly verdict: {
    readonly modelChanged: boolean;
    readonly asChallenger?: readonly string[];
    readonly results: readonly {
      readonly check: string;
      readonly column: string;
      readonly level: string;
      readonly cause?: object;
    }[];
  };
}

interface Given extends SpecOverrides {
  /** By how much the model's scores are higher than those of the fixture, before the sigmoid. */
  readonly shift: number;
  readonly challenger?: object;
}

interface ModelNights extends AsyncDisposable {
  readonly cache: string;
  night(date: string, given: Given): Promise<Ended>;
  other(shift: number): Promise<{ readonly path: string }>;
}

async function modelNights(): Promise<ModelNights> {
  const ownFolder = await scratchFolder();
  const [path, cache] = [join(ownFolder.path, "model.onnx"), join(ownFolder.path, "cache")];
  const nights = await nightlyJob(ownFolder.path, { model: { path, outputs }, checks }, "cancer-logistic");
  return {
    cache,
    async other(shift) {
      const other = join(ownFolder.path, "other.onnx");
      await writeFile(other, await shiftedBy(shift));
      return { path: other };
    },
    async night(date, { shift, ...overrides }) {
      await writeFile(path, await shiftedBy(shift));
      await nights.rewrite(overrides);
      const args = ["run", nights.spec, "--param", `ds=${date}`, "--json"];
      const done = await runHere(args, { env: { XDG_CACHE_HOME: cache } });
      expect(done.stdout, done.stderr).not.toBe("");
      const report = lastJson(done) as unknown as Report;
      const stored = join(nights.folder(date), "_infer-batch", report.run_id, "verdict.json");
      const { verdict } = JSON.parse(await readFile(stored, "utf8")) as Pick<Ended, "verdict">;
      const all = [...report.verdict.failed, ...report.verdict.warnings];
      return { ...done, runId: report.run_id, lines: all.filter((line) => line.startsWith("p: ")), verdict };
    },
    [Symbol.asyncDispose]: () => ownFolder[Symbol.asyncDispose](),
  };
}

interface Report {
  readonly run_id: string;
  readonly verdict: { readonly failed: readonly string[]; readonly warnings: readonly string[] };
}

const causeOf = ({ results }: Ended["verdict"], check: string): object | undefined =>
  results.find((result) => result.check === check && result.column === "p")?.cause;

describe("the first run with a new model", () => {
  test("an output that the new model changed is said to be caused by the model, although its file took the place of the old one", async () => {
    await using job = await modelNights();
    await expectEnd(job.night("2026-11-20", { shift: 0 }), 0);

    const { lines, verdict } = await job.night("2026-11-21", { shift: 6 });

    expect(verdict.modelChanged).toBe(true);
    expect(lines[0]).toMatch(
      /^p: .*; caused by the new model: the model of the last run \(\w{12}\) predicts as usual for 569 of these rows/,
    );
    expect(causeOf(verdict, "shape")).toMatchObject({ of: "model", rows: 569 });
  });

  test("an output that the data changed is said to be caused by the data", async () => {
    await using job = await modelNights();
    await job.night("2026-11-20", { shift: 0 });

    const { verdict } = await job.night("2026-11-21", { shift: 0.01, input: { where: "mean_radius > 14" } });

    expect(verdict.results).toContainEqual(expect.objectContaining({ cause: expect.objectContaining({ of: "data" }) }));
  });

  test("a verdict says nothing of the cause if the previous model is gone, and the log says so", async () => {
    await using job = await modelNights();
    await job.night("2026-11-20", { shift: 0 });
    await rm(job.cache, { recursive: true });

    const { stderr, verdict } = await job.night("2026-11-21", { shift: 6 });

    expect(stderr).toContain(
      "the verdict does not say whether the new model or the data changed the predictions: the model of run ",
    );
    expect(causeOf(verdict, "shape")).toBeUndefined();
  });

  test("the previous model is not asked if the predictions of the new one pass, or the model is not new", async () => {
    await using job = await modelNights();
    await job.night("2026-11-20", { shift: 0 });
    const passed = await job.night("2026-11-21", { shift: 0.01 });
    const moved = await job.night("2026-11-22", { shift: 0.01, input: { where: "mean_radius > 14" } });
    expect(`${passed.stderr}${moved.stderr}`).not.toContain("has scored");
    expect([passed.verdict.modelChanged, moved.verdict.modelChanged]).toEqual([true, false]);
    expect(moved.verdict.results.map(({ level }) => level)).not.toEqual([]);
  });
});

test("a run that goes back to an older model warns of it once; status, the page and the message of a held run say so", async () => {
  const overrides = { model: { path: "model.onnx" }, report: { html: "report.html" } };
  const nights = await nightlyJob(scratch.path, overrides, "cancer-logistic");
  const text =
    /the model is not that of the last run: \S*model\.onnx has sha256 ([0-9a-f]{12})…, that run \(2026-11-2\d\) had ([0-9a-f]{12})…; it was last used on (2026-11-2\d)/;
  const warned: unknown[] = [];
  for (const [date, shift, first] of [
    ["2026-11-20", 0.01, 0],
    ["2026-11-21", 0.02, 1],
    ["2026-11-22", 0.01, 2],
    ["2026-11-23", 0.01, 3],
  ] as const) {
    await nights.rewrite({ ...overrides, input: { where: `id >= 9007199254740993 + ${first}` } }); // a repeat of a night would be held
    await writeFile(join(scratch.path, "model.onnx"), await shiftedBy(shift));
    const { stderr } = await expectEnd(nights.night("run", date), 0);
    warned.push(text.exec(stderr)?.[3]);
    expect(stderr.includes("WARN: the model is not")).toBe(date === "2026-11-22");
  }
  expect(warned).toEqual([undefined, undefined, "2026-11-20", undefined]);

  const [line = ""] = text.exec((await nights.night("status", "2026-11-22")).stdout) ?? [];
  expect((await nights.night("status", "2026-11-22")).stdout).toContain(`\n  note: ${line}\n`);
  expect(lastJson(await nights.night("status", "2026-11-22", "--json"))).toMatchObject({
    verdict: { outcome: "publish", notes: expect.arrayContaining([line]) },
  });
  expect((await nights.night("status", "2026-11-23")).stdout).not.toMatch(text);

  await writeFile(join(scratch.path, "model.onnx"), await shiftedBy(0.02));
  await nights.rewrite(fewRows);
  await expectEnd(nights.night("run", "2026-11-24"), 67, new RegExp(`\\n {2}${text.source}\\n`));
  expect((await nights.night("run", "2026-11-24")).stderr).not.toContain("WARN: the model is not");
  expect(await readFile(join(scratch.path, "report.html"), "utf8")).toMatch(
    /<p>The model is not that of the last run: /,
  );
});
