import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { randomOf } from "../support/random.js";
import { reuseJob, rowCount, scoresById, scoresOf } from "../support/reuse-job.js";
import { runSpec } from "../support/score.js";
import { torture } from "../support/torture.js";

const [first, second] = ["2026-01-01", "2026-01-02"] as const;
const rounds = torture ? 20 : 2;

describe("a process that is killed while it reuses predictions", () => {
  test("a process that is killed while it reuses predictions leaves each row to be published once, and right", async () => {
    const random = randomOf(17);
    for (let round = 0; round < rounds; round += 1) {
      await using scratch = await scratchFolder();
      const job = await reuseJob(scratch.path, { commit_rows: 10 });
      await job.night(first);
      await job.prepare(second);
      const spans = rowCount / 10;
      let [kills, done] = [0, false];
      while (!done) {
        const after = kills === 0 ? 0 : Math.floor(random() * spans);
        let killed = false;
        const { code, stderr } = await runCli(["run", job.spec, "--log-level", "debug", "--no-progress"], {
          onStderr: (seen, child) => {
            // Once as soon as the source is joined, then behind some spans.
            const isAt =
              after === 0
                ? seen.includes("reusing predictions")
                : [...seen.matchAll(/span \d+ committed/g)].length >= after;
            if (isAt && !killed && kills < 3) {
              killed = child.kill("SIGKILL");
            }
          },
        });
        kills += killed ? 1 : 0;
        done = code === 0;
        expect(done || killed, stderr).toBe(true);
      }
      expect(kills).toBeGreaterThan(0);
      const { summary, stderr } = await runSpec(job.spec);
      expect(summary, stderr).toMatchObject({ status: "already_complete" });
      expect(scoresById(await outputRows(join(scratch.path, `out/dt=${second}`)))).toEqual(scoresOf(second));
    }
  });
});
