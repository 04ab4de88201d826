import { test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";

const rows = 200_000;
const select = `SELECT range AS id, (range * 7919 % 10007 + 1)::FLOAT AS x FROM range(${rows})`;
/** One row in 24 of the planned ones would be sampled: 41 of those that are left, too few for a PSI. */
const kept = { where: "id % 200 = 0" };
const nightly = {
  params: { ds: "${today}" },
  checks: {},
  output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
};

test("a feature whose unit has changed is noticed in a run of few filtered rows of many", async () => {
  const { spec, rewrite } = await smallJob(scratch.path, { model: identity, select });
  const run = (date: string): ReturnType<typeof runHere> => runHere(["run", spec, "--param", `ds=${date}`]);
  await rewrite({ ...nightly, input: kept });
  await expectEnd(run("2026-11-20"), 0);
  await rewrite({ ...nightly, input: { ...kept, columns: { x: "(x / 1000)::FLOAT" } } });
  await expectEnd(run("2026-11-21"), 0, /WARN: checks: x: median .*÷1000: thousands\?/);
});
