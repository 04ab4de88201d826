import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { stages } from "#src/report/stage-times.js";
import type { TraceEvent } from "#src/cli/profile.js";
import { runHere } from "../support/cli.js";
import { fixtures, type Fixture, scratch, scratchFolder, writeSpec } from "../support/job.js";

const digits = fixtures.find(({ name }) => name === "digits-lightgbm") as Fixture;

const penguins = fixtures.find(({ name }) => name === "penguins-pipeline") as Fixture;

describe("run --profile", () => {
  test("run --profile writes a trace of all stages and of the model's operators, and a table", async () => {
    const spec = await writeSpec(scratch.path, digits, { engine: { threads: 2 } });
    const file = join(scratch.path, "trace.json");

    const { code, stderr, stdout } = await runHere(["run", spec, "--json", "--no-progress", "--profile", file]);

    expect(code, stderr).toBe(0);
    expect(stderr).toContain(`profile: ${file}`);
    expect(stderr).toMatch(/infer +\d+\.\d\d +in the model/);
    const { traceEvents } = JSON.parse(await readFile(file, "utf8")) as { traceEvents: TraceEvent[] };
    const work = traceEvents.filter(({ ph }) => ph === "X");
    const ours = work.filter(({ tid }) => tid < 1000);
    expect(new Set(ours.map(({ name }) => name))).toEqual(new Set(stages));
    const { stage_seconds: told } = JSON.parse(stdout) as { stage_seconds: Record<string, number> };
    for (const stage of stages) {
      const ms = ours.filter(({ name }) => name === stage).reduce((sum, { dur = 0 }) => sum + dur / 1000, 0);
      expect(ms / 1000).toBeCloseTo(told[stage] ?? -1, 2);
    }
    // ONNX Runtime's pieces lie within those that we timed.
    const operators = work.filter(({ tid, name }) => tid >= 1000 && name.endsWith("_kernel_time"));
    expect(operators.length).toBeGreaterThan(0);
    const last = Math.max(...ours.filter(({ name }) => name === "infer").map(({ ts = 0, dur = 0 }) => ts + dur));
    const slackUs = 20_000;
    for (const { ts = 0, dur = 0 } of operators) {
      expect(ts + dur).toBeLessThan(last + slackUs);
      expect(ts).toBeGreaterThan(0);
    }
  });

  test("run --profile shows that only texts of the job are converted", async () => {
    const operators: string[][] = [];
    for (const outputs of [{ label: "label" }, { p: "probabilities[1]" }]) {
      await using folder = await scratchFolder();
      const spec = await writeSpec(folder.path, { ...penguins, outputs });
      const file = join(folder.path, "trace.json");
      const { code, stderr } = await runHere(["run", spec, "--no-progress", "--profile", file]);
      expect(code, stderr).toBe(0);
      const trace = await readFile(file, "utf8");
      operators.push(["Gather", "Unique"].filter((name) => trace.includes(`"${name}"`)));
    }
    expect(operators).toEqual([["Gather", "Unique"], ["Gather"]]);
  });

  test("run --profile refuses a file that cannot be written before anything is scored", async () => {
    const spec = await writeSpec(scratch.path, digits);
    const file = join(scratch.path, "nowhere/trace.json");

    const { code, stderr } = await runHere(["run", spec, "--no-progress", "--profile", file]);

    expect(code).toBe(64);
    expect(stderr).toContain(`error: writing --profile ${file}: there is no such file or folder (ENOENT)`);
  });
});
