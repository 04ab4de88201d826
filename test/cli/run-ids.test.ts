import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";

test("status, rejects, diff, approve and discard take the id of a run, as history lists it, in place of its params", async () => {
  await using folder = await scratchFolder();
  const job = await nightlyJob(folder.path);
  await job.night("run", "2026-01-01");
  await job.night("run", "2026-01-02");
  await job.rewrite(fewRows);
  await job.night("run", "2026-01-03");
  const { runs } = lastJson(await job.night("history", "2026-01-01", "--json")) as { runs: { run_id: string }[] };
  const [held = "", second = "", first = ""] = runs.map(({ run_id: id }) => id);
  const command = (verb: string, ...args: string[]) => runHere([verb, job.spec, ...args]);

  expect(lastJson(await command("status", "--run", held, "--json"))).toMatchObject({ run_id: held, status: "held" });
  expect((await command("rejects", "--run", second)).stdout).toBe("0 rows rejected in committed spans\n");
  const diff = await command("diff", "--run", second, "--against", first, "--json");
  expect(lastJson(diff)).toMatchObject({ a: first, b: second, rows_compared: 442 });
  expect(lastJson(await command("diff", "--run", second, "--against", "ds=2026-01-01", "--json"))).toMatchObject({
    a: first,
    b: second,
  });
  const approved = await command("approve", "--run", held, "--reason", "a holiday", "--json");
  expect(lastJson(approved)).toMatchObject({ run_id: held, status: "published" });

  const unknown = await command("status", "--run", "job-000000000000");
  expect(unknown).toMatchObject({ code: 64, stderr: expect.stringContaining("infer-batch history lists them") });
  await job.rewrite({});
  await job.night("run", "2026-01-01", "--new-run");
  expect(await command("rejects", "--run", first)).toMatchObject({
    code: 64,
    stderr: expect.stringContaining(`run ${first}-r2 came after it`),
  });
});
