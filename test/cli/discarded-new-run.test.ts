import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob, heldNight } from "../support/nights.js";

test("a discarded new run says that readers still have the run before it, in discard, run, status and the page; run, status and the page name the command that scores again", async () => {
  const nights = await nightlyJob(scratch.path, { report: { html: "page-${ds}.html" } });
  await nights.night("run", "2026-11-20");
  const first = lastJson(await nights.night("run", "2026-11-21", "--json"))["run_id"];
  await nights.rewrite(fewRows);
  const held = await nights.night("run", "2026-11-21", "--new-run");
  expect(held.code, held.stderr).toBe(67);

  const readers = `readers still have run ${String(first)} of 2026-11-21`;
  const discarded = await nights.night("discard", "2026-11-21");
  expect(discarded.stdout).toBe(`${String(first)}-r2: discarded; ${readers}\n`);
  const page = async (): Promise<string> => await readFile(join(scratch.path, "page-2026-11-21.html"), "utf8");
  const newRun = `infer-batch run ${nights.spec} --param ds=2026-11-21 --new-run`;
  const shown = [
    `. Readers still have run ${String(first)} of 2026-11-21.</h1>`,
    `<p>To score again:</p><pre>${newRun}</pre>`,
  ];
  for (const text of shown) {
    expect(await page()).toContain(text);
  }
  await rm(join(scratch.path, "page-2026-11-21.html"));
  const again = await nights.night("run", "2026-11-21");
  for (const text of shown) {
    expect(await page()).toContain(text);
  }
  expect(again.stderr).toContain(`hint: to score again: ${newRun}\n`);
  expect([again.code, again.stdout]).toEqual([67, expect.stringMatching(new RegExp(`: discarded; ${readers}\n$`))]);
  expect((await nights.night("status", "2026-11-21")).stdout).toContain(
    `\n  ${readers}\n  to score again: ${newRun}\n`,
  );
  expect(lastJson(await nights.night("status", "2026-11-21", "--json"))).toMatchObject({ commands: [newRun] });

  for (const command of ["status", "rejects"]) {
    const other = await nights.night(command, "2026-11-21", "--run", String(first));
    expect([other.code, other.stdout, other.stderr]).toEqual([
      64,
      "",
      expect.stringContaining(
        `looking for run ${String(first)}: the latest run of these params is ${String(first)}-r2`,
      ),
    ]);
  }
  expect((await nights.night("status", "2026-11-21", "--run", `${String(first)}-r2`)).code).toBe(0);
});

test("discard of a run without a date says once that nothing of it is published: in its line, in that of run and on the page", async () => {
  const undated = { params: {}, output: { parquet: { path: "out" } }, report: { html: "page.html" } };
  const nights = await nightlyJob(scratch.path, { ...undated, checks: { outputs: { score: { range: [0, 1] } } } });
  const { run_id: runId } = lastJson(await runHere(["run", nights.spec, "--json"]));

  const discarded = await runHere(["discard", nights.spec, "--by", "ana"]);
  const page = async (): Promise<string> => await readFile(join(scratch.path, "page.html"), "utf8");
  const decided = await page();
  await rm(join(scratch.path, "page.html"));
  const again = await runHere(["run", nights.spec, "--no-progress"]);

  const said = `${String(runId)}: discarded; nothing of this run is published\n`;
  expect([discarded.stdout, again.stdout]).toEqual([said, said]);
  expect(decided).toContain("<h1>DISCARDED. Discarded by ana. Nothing of this run is published.</h1>");
  expect(await page()).toContain("<h1>DISCARDED. Nothing of this run is published.</h1>");
});

test("approve of a night that is published names the night that is held, and of the held one confirms the baseline", async () => {
  const nights = await nightlyJob(scratch.path);
  const runId = await heldNight(nights);

  const other = await nights.night("approve", "2026-11-20");
  expect([other.code, other.stdout.split("\n")]).toEqual([
    0,
    [
      expect.stringMatching(/: already published, 442 rows -> /),
      expect.stringMatching(
        new RegExp(
          `^run ${runId} in \\S+ is held by its checks; to publish it: infer-batch approve .* --run ${runId};`,
        ),
      ),
      "",
    ],
  ]);

  for (const [reasons, said] of [
    [["--reason", ""], "not empty"],
    [["--reason", " "], "not empty"],
    [["--reason", "one", "--reason", "two"], "given before"],
  ] as const) {
    const refused = await nights.night("approve", "2026-11-21", ...reasons);
    expect([refused.code, refused.stdout, refused.stderr]).toEqual([64, "", expect.stringContaining(said)]);
  }

  const approved = await nights.night("approve", "2026-11-21", "--reason", "a small day");
  expect(approved.stdout).toMatch(/: published, 50 rows, 392 filtered out -> \S+; later runs may resemble it\n$/);
  const again = await nights.night("approve", "2026-11-21");
  expect(again.stdout).toMatch(/: already published, .*; later runs may resemble it\n$/);
});
