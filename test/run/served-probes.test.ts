import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { servedJob, type ServedJob, type ServedJobOptions } from "../support/served-job.js";
import type { Misbehaviour, V2Server } from "../support/v2-server.js";

const signature = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };

function kserveJob(options: ServedJobOptions = {}): Promise<ServedJob> {
  const overrides = { engine: { batch_size: 20 }, ...options.overrides };
  return servedJob({ rest: { kind: "kserve" }, keys: { signature }, ...options, overrides });
}

/** Another model: each prediction is changed. */
const changed = (change: (value: number) => number): Misbehaviour => ({
  outputs: (all) =>
    all.map((one) => ({ ...one, values: Float32Array.from(one.values as Float32Array, (value) => change(value)) })),
});

const other = changed((value) => value * 1.05);

/** Changes the model after so many rows of the input. */
function afterRows(most: number, then: Misbehaviour): V2Server["misbehave"] {
  let seen = 0;
  return ({ rows, inputs: [input] }) => {
    seen += [...(input?.values ?? [])].every((value) => Number(value) === 0) ? 0 : rows;
    return seen > most ? then : undefined;
  };
}

async function planOf(out: string): Promise<string> {
  const folder = join(out, "_infer-batch");
  const names = await readdir(folder);
  const texts = names.map((name) => readFile(join(folder, name, "plan.json"), "utf8").catch(() => ""));
  return (await Promise.all(texts)).join("");
}

describe("a model whose server names no version", () => {
  test("the plan has the predictions of 16 rows, and none of their features and keys", async () => {
    await using job = await kserveJob();
    const golden = await goldenRows(job.fixture);

    const ended = await job.run();

    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    await expectFinished(job.out, { golden });
    const { model } = JSON.parse(await planOf(job.out)) as { model: { probe: Record<string, unknown> } };
    expect(Object.keys(model.probe)).toEqual(["rows", "inputs", "outputs"]);
    expect(model.probe).toMatchObject({ rows: 16, inputs: expect.stringMatching(/^[0-9a-f]{64}$/) });
    const { score } = model.probe["outputs"] as { score: number[][] };
    expect(score).toEqual(golden.slice(0, 16).map((row) => [expect.closeTo(Number(row["score"]), 3)]));
  });

  test("a model that changes during the run ends it with 66 before it is published, until the planned one is back", async () => {
    await using job = await kserveJob();
    job.server.misbehave = afterRows(250, other);

    const ended = await job.run();
    job.server.misbehave = () => other;
    const again = await job.run();
    job.server.misbehave = undefined;
    const back = await job.run();

    for (const one of [ended, again]) {
      expect(one, one.stderr).toMatchObject({ code: 66 });
      expect(one.stderr).toMatch(
        /comparing the model of .* with the plan: row 0 of those compared: `score` is [\d.]+, planned [\d.]+/,
      );
      expect(one.stderr).toContain("--new-run");
    }
    expect(back, back.stderr).toMatchObject({ code: 0, report: { status: "complete", rows_scored: 0 } });
  });

  test("a model that changed between two attempts is refused before anything is scored; --new-run scores with it", async () => {
    await using job = await kserveJob({ overrides: { commit_rows: 100 } });
    job.server.misbehave = afterRows(250, { status: 501 });
    const stopped = await job.run();
    job.server.misbehave = () => other;
    const before = job.server.paths.length;

    const ended = await job.run();
    const requests = job.server.paths.slice(before).filter((path) => path.endsWith("predict")).length;
    const renewed = await job.run("--new-run");

    expect(stopped, stopped.stderr).toMatchObject({ code: 64 });
    expect(ended, ended.stderr).toMatchObject({ code: 66 });
    expect(requests).toBeLessThanOrEqual(2);
    expect(renewed, renewed.stderr).toMatchObject({ code: 0, report: { rows_scored: 442 } });
  });

  test("predictions that differ as those of another GPU do are those of the same model", async () => {
    await using job = await kserveJob();
    job.server.misbehave = afterRows(
      250,
      changed((value) => value * (1 + 1e-4)),
    );
    const ended = await job.run();
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
  });

  test("a model that predicts other values each time is scored with a warning", async () => {
    await using job = await kserveJob();
    job.server.misbehave = ({ number }) => changed((value) => value + number);
    const ended = await job.run();
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    expect(ended.stderr).toContain("a change of the model during this run would not be noticed");
  });

  test("servers that predict different values are refused before anything is scored", async () => {
    await using job = await kserveJob({ copies: 2 });
    job.server.misbehave = () => other;
    const ended = await job.run();
    expect(ended, ended.stderr).toMatchObject({ code: 64 });
    expect(ended.stderr).toMatch(/predicts other values than http:/);
  });

  test("a change of one of several servers during the run ends it with 66", async () => {
    await using job = await kserveJob({ copies: 2 });
    job.server.misbehave = afterRows(120, other);
    const ended = await job.run();
    expect(ended, ended.stderr).toMatchObject({ code: 66 });
    expect(ended.stderr).toContain(`comparing the model of ${job.server.url}`);
  });
});
