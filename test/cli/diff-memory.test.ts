import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { runMeasured } from "../support/peak-memory.js";

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
});
