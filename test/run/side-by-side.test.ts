import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { leaveUnfinished, runSpec } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { torture } from "../support/torture.js";

/** Spans enough for two processes to meet in. */
const fixture = fixtureNamed("digits-lightgbm");
const commitRows = torture ? 20 : 90;
const spans = Math.ceil(1797 / commitRows);
const rounds = torture ? [1, 2, 3, 4] : [2]; // and the one of three processes, which begin a run, too

describe("processes started at the same moment on one run", () => {
  test.each([...rounds.map((round) => ({ round, processes: 2 })), { round: 5, processes: 3 }])(
    "all exit 0 and each row is there once (round $round, $processes processes)",
    async ({ processes, round }) => {
      const spec = await writeSpec(scratch.path, fixture, { commit_rows: commitRows, engine: { batch_size: round } });
      const out = join(scratch.path, "out");
      // Every other round starts from an unfinished run: then neither writes a plan.
      if (round % 2 === 0) {
        await leaveUnfinished(spec, out, (span) => span % 3 === 0);
      }

      const results = await Promise.all(Array.from({ length: processes }, () => runSpec(spec, { ownProcess: true })));

      for (const { code, stderr, summary } of results) {
        expect(code, stderr).toBe(0);
        expect(["complete", "already_complete"]).toContain(summary?.status);
        expect(summary).toMatchObject({ rows_planned: 1797, spans_committed: spans });
      }
      await expectFinished(out, { golden: await goldenRows(fixture) });
      expect((await runSpec(spec)).summary).toMatchObject({ status: "already_complete" });
    },
  );
});
