import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { holdRun } from "../support/faulty.js";
import { differences } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames } from "../support/output.js";
import { leaveUnfinished, scoreHere } from "../support/score.js";
import { watchedJob } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

async function partsOf(out: string): Promise<string[]> {
  return (await listing(out)).filter((line) => /^(part-|_SUCCESS|_manifest)/.test(line));
}

describe("an output folder that another attempt plans again during a run", () => {
  /** The same job with other spans: another plan of the same run. */
  const otherRows = 130;

  const ofFinished = [
    "link part-00002 #1",
    "sync control/tmp/part-00003-parquet #1",
    "rename _SUCCESS #1",
    "sync control/tmp/part-00001-parquet #1",
    "link part-00005 #1",
    "write control/tmp/_manifest-json #1",
  ];

  test.each(firstOf(ofFinished, 3))(
    "a run whose folder was planned again and finished leaves it as it is (held before %s)",
    async (call) => {
      const { spec, out, expected } = await watchedJob(scratch.path);
      const run = await holdRun(spec, { out, call, held: join(scratch.path, "held") });
      await rm(out, { recursive: true, maxRetries: 10 }); // the run may be writing into it
      await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { commit_rows: otherRows });
      await scoreHere(spec);
      const before = await partsOf(out);

      await expectEnd(run.release(), 66, /has planned the run again|is gone/);
      expect(await partsOf(out)).toEqual(before);
      expect(differences(await outputRows(out), expected.golden)).toEqual([]);
      expect(await faultsOfFinished(out, 442)).toEqual([]);
    },
  );

  const ofUnfinished = [
    "sync control/tmp/part-00001-parquet #1",
    "write control/tmp/_manifest-json #1",
    "link part-00002 #1",
    "link part-00005 #1",
  ];

  test.each(firstOf(ofUnfinished, 2))(
    "a run whose folder was planned again and not finished adds no part and no _SUCCESS of the old plan (held before %s)",
    async (call) => {
      const { spec, out, expected } = await watchedJob(scratch.path);
      const run = await holdRun(spec, { out, call, held: join(scratch.path, "held") });
      await rm(out, { recursive: true, maxRetries: 10 }); // the run may be writing into it
      await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { commit_rows: otherRows });
      await leaveUnfinished(spec, out, (span) => span === 1);

      await expectEnd(run.release(), 66);
      expect(await readdir(out)).not.toContain("_SUCCESS");
      expect((await partNames(out)).map((name) => name.slice(0, 10))).toEqual(["part-00001"]);
      expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansPlanned: 4, spansResumed: 1 });
      await expectFinished(out, expected);
    },
  );
});
