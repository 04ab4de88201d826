import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";

const reports = { report: { html: "page-${ds}.html", metrics: "job.prom" } };

/** A job that has published 20 November and is held on later dates, which have few rows. */
async function jobBeforeHold(folder: string): ReturnType<typeof nightlyJob> {
  const job = await nightlyJob(folder, reports);
  await job.night("run", "2026-11-20");
  await job.rewrite({ ...reports, ...fewRows });
  return job;
}

test("the page and metrics of a held run show the reason, and then the decision of a person", async () => {
  const job = await nightlyJob(scratch.path, reports);
  const page = (): Promise<string> => readFile(join(scratch.path, "page-2026-11-22.html"), "utf8");
  const state = async (): Promise<unknown> =>
    /infer_batch_run_state\{.*state="(\w+)"\} 1/.exec(await readFile(join(scratch.path, "job.prom"), "utf8"))?.[1];
  expect((await job.night("run", "2026-11-21")).code).toBe(0);
  expect(await state()).toBe("published");
  await job.rewrite({ ...reports, ...fewRows });
  const held = await job.night("run", "2026-11-22", "--json");
  expect([held.code, await state()]).toEqual([67, "held"]);
  const heldPage = await page();
  expect(heldPage).toContain("<h1>HELD. Readers still have the run of 21 Nov, and nothing of 22 Nov.</h1>");
  // Two runs, each with its time.
  expect(heldPage).toMatch(/duration <b>\d+\.\d s<\/b><\/figcaption><svg[^>]*><path class="line" d="M4 \S+L116 \S+"/);
  const { verdict } = lastJson(held) as { verdict: { failed: string[] } };
  expect(verdict.failed.length).toBeGreaterThan(0);
  expect(verdict.failed.filter((line) => !heldPage.includes(line))).toEqual([]);
  const command = /<pre>infer-batch (approve .*?)<\/pre>/.exec(heldPage)?.[1] ?? "";
  expect(held.stderr).toContain(`infer-batch ${command}`);
  expect((await job.night("run", "2026-11-22")).code).toBe(67);
  expect(await page(), "the page of the attempt that scored").toBe(heldPage);
  const run = /--run (\S+)/.exec(command)?.[1] ?? "";
  const approved = await job.night("approve", "2026-11-22", "--run", run, "--by", "ana", "--reason", "one shop only");
  expect([approved.code, approved.stderr]).toEqual([0, ""]);
  expect(await page()).toContain("<h1>PUBLISHED. Approved by ana: one shop only.</h1>");
  expect(await state()).toBe("published");
  expect((await job.night("run", "2026-11-22")).code).toBe(0);
  expect(await page()).toContain("<h1>PUBLISHED. Approved by ana: one shop only.</h1>");
});

async function gauges(path: string): Promise<readonly unknown[]> {
  const text = await readFile(path, "utf8");
  return [
    /run_state\{.*state="(\w+)"\} 1/.exec(text)?.[1],
    Number(/exit_code\{.*\} (\d+)/.exec(text)?.[1]),
    Number(/last_success_timestamp_seconds\{.*\} (\S+)/.exec(text)?.[1]),
  ];
}

test("a decision on a run that several workers scored is in the page and the metrics of each", async () => {
  const job = await jobBeforeHold(scratch.path);
  const files = [0, 1].map((index) => ({
    page: join(scratch.path, `page-2026-11-21.worker-${index}.html`),
    metrics: join(scratch.path, `job.worker-${index}.prom`),
  }));
  const headings = (): Promise<unknown[]> =>
    Promise.all(files.map(async ({ page }) => /<h1>([^<]*)/.exec(await readFile(page, "utf8"))?.[1]));
  expect((await job.night("run", "2026-11-21", "--worker", "0/2")).code).toBe(0);
  const held = await job.night("run", "2026-11-21", "--worker", "1/2");
  expect([held.code, await headings()]).toEqual([
    67,
    ["UNFINISHED. 3 spans left to other workers.", expect.stringMatching(/^HELD\./)],
  ]);
  expect(held.stderr).toMatch(/; look at its input \(2 files, such as \S+\.parquet\), or at the page /);
  expect(held.stderr).toContain(`, or at the page ${files[1]?.page}, then decide`);
  const reason = "as postgres://me:secret@db/x has it";
  expect((await job.night("approve", "2026-11-21", "--by", "ana", "--reason", reason)).stderr).toBe("");
  const approved = "PUBLISHED. Approved by ana: as postgres://***@db/x has it.";
  expect(await headings()).toEqual([approved, approved]);
  const { decision } = JSON.parse((await job.night("status", "2026-11-21", "--json")).stdout) as {
    decision: { at: string; reason: string };
  };
  expect(decision.reason).toBe("as postgres://***@db/x has it");
  const published = ["published", 0, Date.parse(decision.at) / 1000];
  expect(await Promise.all(files.map(({ metrics }) => gauges(metrics)))).toEqual([published, published]);
});

test("a decision is in all reports that can be written", async () => {
  const job = await jobBeforeHold(scratch.path);
  for (const worker of ["0/2", "1/2"]) {
    await job.night("run", "2026-11-21", "--worker", worker);
  }
  // In the way of the new page of worker 0.
  await mkdir(join(scratch.path, `.page-2026-11-21.worker-0.html.${process.pid}.tmp`));
  const { code, stderr } = await job.night("approve", "2026-11-21", "--by", "ana");
  expect([code, stderr]).toEqual([0, expect.stringMatching(/^warning: writing the decision into the reports: .*\n$/)]);
  expect(await readFile(join(scratch.path, "page-2026-11-21.worker-1.html"), "utf8")).toContain("<h1>PUBLISHED.");
  for (const index of [0, 1]) {
    expect((await gauges(join(scratch.path, `job.worker-${index}.prom`))).slice(0, 2)).toEqual(["published", 0]);
  }
});

test("a decision that is made on another machine than that of the reports says when these change", async () => {
  const job = await jobBeforeHold(scratch.path);
  await job.night("run", "2026-11-21");
  const elsewhere = { report: { html: "laptop/page-${ds}.html", metrics: "laptop/job.prom" } };
  await job.rewrite({ ...elsewhere, ...fewRows });
  const { stderr } = await job.night("approve", "2026-11-21", "--by", "ana");
  expect(stderr).toMatch(
    /^warning: writing the decision into the reports: there is no file of report\.metrics and report\.html here; one on another machine does not show the decision until the job runs there again with the same params, which scores nothing\n$/,
  );
  await job.rewrite({ ...reports, ...fewRows });
  expect((await job.night("run", "2026-11-21")).stdout).toContain("already complete");
  expect((await gauges(join(scratch.path, "job.prom"))).slice(0, 2)).toEqual(["published", 0]);
  const page = await readFile(join(scratch.path, "page-2026-11-21.html"), "utf8");
  expect(/<h1>(\w+)/.exec(page)?.[1]).toBe("PUBLISHED");
});

test("the page of a held run names an approved run as the one that readers have", async () => {
  const job = await jobBeforeHold(scratch.path);
  await job.night("run", "2026-11-21");
  await job.night("approve", "2026-11-21", "--not-normal");
  await job.night("run", "2026-11-22");
  const { runs } = lastJson(await job.night("history", "2026-11-22", "--json")) as { runs: { seconds: unknown }[] };
  expect(
    runs.map(({ seconds }) => typeof seconds),
    "held, approved, published",
  ).toEqual(["number", "number", "number"]);
  const page = await readFile(join(scratch.path, "page-2026-11-22.html"), "utf8");
  expect(page).toContain("<h1>HELD. Readers still have the run of 21 Nov, and nothing of 22 Nov.</h1>");
  expect(page, "the approved run is in the charts, with its duration").toMatch(
    /The last 3 runs.*duration <b>\d+\.\d s<\/b><\/figcaption><svg[^>]*><path class="line" d="M4 \S+L60 \S+L116 \S+"/s,
  );
});
