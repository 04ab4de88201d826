import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { randomOf } from "../support/random.js";
import { reuseJob, rowCount, rowsOf, scoresById, scoresOf } from "../support/reuse-job.js";
import { runSpec } from "../support/score.js";
import { firstOf, torture } from "../support/torture.js";

const [first, second, third] = ["2026-01-01", "2026-01-02", "2026-01-03"] as const;
const rounds = torture ? 20 : 1;

test.each(
  firstOf([
    ["of the night before", []],
    ["of the run that it replaces", ["--new-run", "--reuse"]],
  ] as const),
)(
  "a process that is killed while it reuses predictions %s leaves each row to be published once, and right",
  async (_, args) => {
    const rows = args.length === 0 ? second : third;
    const random = randomOf(17);
    for (let round = 0; round < rounds; round += 1) {
      await using scratch = await scratchFolder();
      const job = await reuseJob(scratch.path, { commit_rows: 10 });
      await job.night(first);
      if (args.length > 0) {
        await job.night(second);
      }
      await job.prepare(second, { select: rowsOf(rows) });
      const spans = rowCount / 10;
      let [kills, done] = [0, false];
      while (!done) {
        const after = kills === 0 ? 0 : Math.floor(random() * spans);
        let killed = false;
        const { code, stderr } = await runCli(["run", job.spec, ...args, "--log-level", "debug", "--no-progress"], {
          onStderr: (seen, child) => {
            // Once as soon as the source is read, then behind some spans.
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
      expect(scoresById(await outputRows(join(scratch.path, `out/dt=${second}`)))).toEqual(scoresOf(rows));
    }
  },
);
