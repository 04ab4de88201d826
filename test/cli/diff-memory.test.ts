import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";
import { runMeasured } from "../support/peak-memory.js";
import { torture } from "../support/torture.js";

describe.runIf(process.platform === "linux")("memory of diff", () => {
  test("diff joins more rows than its memory holds, and takes no more memory than engine.memory allows", async () => {
    const rows = 300_000;
    const text = [1, 2, 3].map((part) => `md5((row + ${part})::VARCHAR)`).join(" || ");
    const { spec } = await smallJob(scratch.path, {
      params: { night: "1" },
      model: identity,
      select: `SELECT ${text} AS id, sin(row)::FLOAT AS moved, row FROM range(${rows}) AS t(row)`,
      input: { columns: { x: "(moved + case when row % 100 = 0 then ${night} else 0 end)::float" } },
      output: { columns: ["id"], parquet: { path: "out/${night}" } },
      engine: { memory: "64MiB" },
    });
    for (const night of [1, 2]) {
      const { code, stderr } = await runHere(["run", spec, "--param", `night=${night}`, "--quiet"]);
      expect(code, stderr).toBe(0);
    }
    const found = await runMeasured(["diff", spec, "--param", "night=2", "--against", "night=1", "--json"]);
    expect(found.stderr).toBe("");
    expect(lastJson(found)).toMatchObject({ rows_a: rows, rows_compared: rows, rows_changed: rows / 100 });
    // Of these 300 MiB most are the libraries; without a limit it took 570.
    expect(found.peakMiB).toBeLessThan(430);
  });

  // 20 million rows in the long form: the run took 1,660 MiB, evaluate 1,590.
  test("a run is compared with its challenger's, and both are judged by labels, in bounded memory", async () => {
    const [rows, memory, mostMiB] = torture ? [20_000_000, "1GiB", 1850] : [300_000, "64MiB", 480];
    const id = "(1::BIGINT << 60) + row AS id";
    const x = "((hash(row) >> 11)::DOUBLE / 2 ** 53)::FLOAT";
    const { spec } = await smallJob(scratch.path, {
      model: identity,
      select: `SELECT ${id}, ${x} AS x, if(row % 1000 = 7, NULL, (x + if(row % 100 = 0, 1, 0))::FLOAT) AS y FROM range(${rows}) AS t(row)`,
      challenger: { path: "model.onnx", inputs: { x: ["y"] }, outputs: { score: "score" } },
      output: { columns: ["id"], parquet: { path: "out" } },
      engine: { memory },
    });
    const run = await runMeasured(["run", spec, "--json", "--no-progress"]);
    expect(run.code, run.stderr).toBe(0);
    expect(lastJson(run)["challenger"]).toMatchObject({
      rows_compared: rows - rows / 1000,
      rows_missed: { null: rows / 1000 },
      outputs: { score: { rows_beyond_tolerance: rows / 100, largest_difference: expect.closeTo(1, 6) } },
    });
    // A label for every other row.
    const labels = join(scratch.path, "labels.parquet");
    await writeRows(
      labels,
      `SELECT ${id}, if(row % 2 = 0, (${x} >= 0.5)::INTEGER, NULL) AS above FROM range(${rows}) AS t(row)`,
    );
    const asked = ["--labels", labels, "--label", "above", "--json"];
    const judged = await runMeasured(["evaluate", spec, ...asked]);
    expect(judged.stderr).toBe("");
    const known = { rows_labelled: rows / 2, rows_judged: rows / 2 };
    expect(lastJson(judged)).toMatchObject({
      nights: [{ models: [{ rows, ...known, auc: 1, precision: 1, recall: 1 }, { model: "challenger" }] }],
    });
    expect(Math.max(run.peakMiB, judged.peakMiB)).toBeLessThan(mostMiB);
  }, 1_200_000);
});
