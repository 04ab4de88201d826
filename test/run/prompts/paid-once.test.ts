import { readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { OpenedJob } from "#src/flow/opened-job.js";
import { openJob } from "#src/job/open.js";
import { runJob } from "#src/run/run.js";
import { expectEnd, expectReport, runCli } from "../../support/cli.js";
import { lastJson } from "../../support/nights.js";
import { writeRows } from "../../support/parquet.js";
import { promptJob, type PromptJobOptions } from "../../support/prompt-job.js";
import { alone } from "../../support/score.js";
import { latch, until } from "../../support/waiting.js";

const rows = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;
const nightly = {
  params: { ds: "${today}" },
  reuse: { key: ["id"] },
  output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
};
/** Ten rows: the first three are the same each night, and one has no prompt. */
const night = (text: string): string =>
  `SELECT i::INTEGER AS id, CASE WHEN i = 6 THEN NULL WHEN i < 3 THEN 'kept ' || i ELSE '${text} ' || i END AS body FROM range(10) t(i)`;
const firstNight = ["--param", "ds=2026-01-01"];
const secondNight = ["--param", "ds=2026-01-02"];

test("with reuse, a row without a prompt is the only one that is rejected", async () => {
  await using job = await promptJob({
    ...nightly,
    select: night("a"),
    on_bad_row: "reject",
    max_rejects: "50%",
    server: { version: "m" },
  });
  expect((await job.run(...firstNight)).report).toMatchObject({ rows_scored: 9, rows_rejected: 1 });
  await writeRows(join(job.folder, "texts.parquet"), night("b"));
  const { report, stderr } = await job.run(...secondNight);
  expect(report, stderr).toMatchObject({ rows_scored: 9, rows_rejected: 1, rows_reused: 3 });
});

test("rows that are reused are not asked, and not counted against the budget", async () => {
  const model = { sampling: { max_tokens: 10 } };
  await using job = await promptJob({ ...nightly, select: rows(300), server: { version: "m" }, model });
  await expectEnd(job.run(...firstNight), 0);
  expect(job.server.requests).toHaveLength(300);
  await job.rewrite({ ...nightly, server: { version: "m" }, model: { ...model, budget: { max_tokens: 1000 } } });
  await expectEnd(job.run(...secondNight), 0);
  expect(job.server.requests).toHaveLength(300);
});

test("a new run with --reuse asks only about rejected and changed rows of the run that it replaces", async () => {
  let isCut = true;
  const reply: PromptJobOptions["reply"] = ({ text }) =>
    isCut && /[37]$/.test(text) ? { content: "te", finish: "length" } : { content: text };
  const rejecting = { on_bad_row: "reject", max_rejects: "50%" };
  await using job = await promptJob({ ...nightly, ...rejecting, reply, select: rows(20), server: { version: "m" } });
  expect((await job.run(...firstNight)).report).toMatchObject({ rows_scored: 16, rows_rejected: 4 });
  isCut = false;
  await writeRows(join(job.folder, "texts.parquet"), `${rows(20)} UNION ALL SELECT 20, 'more'`);
  const before = job.server.requests.length;

  const { report, stderr } = await job.run(...firstNight, "--new-run", "--reuse");

  expect(report, stderr).toMatchObject({ rows_scored: 21, rows_rejected: 0, rows_reused: 16 });
  expect(job.server.requests).toHaveLength(before + 5);
});

test("answers to another prompt are not reused", async () => {
  await using job = await promptJob({ ...nightly, server: { version: "m" } });
  await expectEnd(job.run(...firstNight), 0);
  await job.rewrite({ ...nightly, server: { version: "m" }, model: { prompt: { user: "Translate: {{body}}" } } });
  const { report, stderr } = await job.run(...secondNight);
  expect(report, stderr).toMatchObject({ rows_scored: 20, rows_reused: 0 });
  expect(job.server.requests).toHaveLength(40);
});

test("reuse is refused for servers whose models may have any name", async () => {
  await using job = await promptJob({ ...nightly, server: { version: "*" } });
  await expectEnd(job.run(...firstNight), 64, "the server names no version of the model");
});

test("answers of two models that two workers get do not make one run", async () => {
  const both = latch<void>();
  const models = new Set<string>();
  await using job = await promptJob({
    commit_rows: 10,
    server: { concurrency: 2 },
    reply: async ({ text }) => {
      const model = Number(text.slice(5)) < 10 ? "m-old" : "m-new";
      models.add(model);
      if (models.size === 2) {
        both.resolve();
      }
      await both.promise; // neither worker has finished before the other one is answered
      return { content: text, model };
    },
  });
  const ends = await Promise.all(
    ["0/2", "1/2"].map((worker) => runCli(["run", job.spec, "--no-progress", "--worker", worker])),
  );
  expect(
    ends.map(({ code }) => code),
    ends.map(({ stderr }) => stderr).join(""),
  ).toContain(66);
  const again = await job.run(); // all rows are committed: nothing is asked, and nothing is published
  expect([again.code, again.stderr]).toEqual([66, expect.stringContaining("names model")]);
});

test("the worker that finishes a run counts the answers of all workers, also those that came after it started", async () => {
  const both = latch<void>();
  const seen = new Set<boolean>();
  await using job = await promptJob({
    commit_rows: 10,
    model: { budget: { price: { input: 1000, output: 1000 } } },
    reply: async ({ text }) => {
      seen.add(Number(text.slice(5)) < 10);
      if (seen.size === 2) {
        both.resolve();
      }
      await both.promise; // each worker has read what the other one had kept: nothing
      return { content: text };
    },
  });
  const ends = await Promise.all(
    ["0/2", "1/2"].map((worker) => runCli(["run", job.spec, "--no-progress", "--json", "--worker", worker])),
  );
  const reports = ends.map(({ stdout }) => JSON.parse(stdout) as { status: string; spending: { run: object } });
  const { answers, prompt, completion } = job.server.books;
  expect(answers).toBe(20);
  const run = { answers: 20, prompt_tokens: prompt, completion_tokens: completion };
  const finishing = reports.filter(({ status }) => status === "complete");
  // Both, if they end at the same time. Then one of them may have removed the answers before the other counts.
  expect(finishing.length).toBeGreaterThan(0);
  for (const { spending } of finishing) {
    expect(spending.run).toMatchObject({ ...run });
  }
  const history = await job.command("history", job.spec, "--json");
  const cost = Math.round((prompt + completion) * 1000) / 1e6;
  expect(JSON.parse(history.stdout)).toMatchObject({ runs: [{ spending: { ...run, cost } }] });
  const text = await job.command("history", job.spec);
  expect(text.stdout).toContain(`20 answers, ${prompt} tokens in, ${completion} out, cost ${cost.toFixed(2)}`);
});

test("a worker that counts when another one has finished the run, and removed its answers, counts what that one has recorded", async () => {
  const first = latch<void>();
  await using job = await promptJob({
    commit_rows: 10,
    reply: async ({ text }) => {
      await (Number(text.slice(5)) < 10 ? undefined : first.promise);
      return { content: text };
    },
  });
  const waiting = runCli(["run", job.spec, "--no-progress", "--json", "--worker", "1/2"]);
  await until(() => job.server.requests.length > 0); // it has read what was kept: nothing
  const { report } = await job.run("--worker", "0/2");
  const run = { answers: 20, prompt_tokens: 33, cached_tokens: 0, completion_tokens: 44 };
  const control = join(job.out, "_infer-batch", String(report["run_id"]));
  await writeFile(join(control, "spending.json"), JSON.stringify({ ...run, cost: null }));
  await rm(join(control, "answers"), { recursive: true });
  first.resolve();

  const { stdout, stderr } = await waiting;

  expect(JSON.parse(stdout), stderr).toMatchObject({ status: "complete", spending: { answers: 10, run } });
});

test("an answer that is lost on a connection that was used before is counted as lost", async () => {
  const answer = { choices: [{ message: { content: "a" }, finish_reason: "stop" }] };
  await using job = await promptJob({
    select: rows(3),
    server: { concurrency: 1 },
    report: { html: "page.html" },
    reply: async ({ number }) => {
      await sleep(20);
      return number === 2 || number === 4 ? { cut: true } : { raw: JSON.stringify({ model: "m", ...answer }) };
    },
  });
  const { report, stderr } = await job.run();
  expect(job.server.requests, stderr).toHaveLength(5);
  expect(report["spending"]).toMatchObject({ requests_lost: 2, run: { answers: 3 } });
  expect(await readFile(join(job.folder, "page.html"), "utf8")).toContain(
    "; 2 requests got no answer, and may have been paid for",
  );
});

test("a budget holds over attempts where the server names no tokens", async () => {
  await using job = await promptJob({
    server: { concurrency: 1 },
    model: { sampling: { max_tokens: 10 }, budget: { max_tokens: 600 } },
    reply: () => ({ raw: '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}' }),
  });
  await expectEnd(job.run(), 67);
  const asked = job.server.requests.length;
  expect(asked).toBeGreaterThan(0);
  await expectEnd(job.run(), 67);
  expect(job.server.requests).toHaveLength(asked);
});

/** A request may take a token for each byte of its body, 64 more for the chat template, and its answer. */
const worst = ({ body }: { readonly body: object }): number => JSON.stringify(body).length + 64 + 10;

test("answers that were lost count against the budget of later attempts: they may have been paid for", async () => {
  let isCut = true;
  await using job = await promptJob({
    server: { concurrency: 1 },
    model: { sampling: { max_tokens: 10 }, budget: { max_tokens: 500 } },
    retry: { max_seconds: 2 },
    reply: ({ text }) => (isCut ? { cut: true } : { content: text }),
  });
  const away = await job.run();
  expect([67, 75], away.stderr).toContain(away.code);
  const asked = job.server.requests.length;
  expect(away.report["exit_code"]).toBe(away.code);
  isCut = false;

  await expectEnd(job.run(), 67);

  const lost = job.server.requests.slice(0, asked).map(worst);
  const { prompt, completion } = job.server.books;
  const most = lost.reduce((sum, one) => sum + one, 0) + prompt + completion;
  expect(asked).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(500);
});

test("a source of reuse that is away for a while is waited for by another attempt, since prompts cost money", async () => {
  await using job = await promptJob({ ...nightly, server: { version: "m" } });
  await expectEnd(job.run(...firstNight), 0);
  job.server.reply = () => ({ status: 401, body: {} });
  await writeRows(join(job.folder, "texts.parquet"), rows(21));
  await expectEnd(job.run(...secondNight), 64); // planned, with the first night as its source
  job.server.reply = ({ text }) => ({ content: text });
  const asked = job.server.requests.length;
  const source = join(job.folder, "out/dt=2026-01-01");
  await rename(source, `${source}.away`);

  const away = await job.run(...secondNight);
  expect([away.code, job.server.requests.length], away.stderr).toEqual([75, asked]);

  await rename(`${source}.away`, source);
  const { report, stderr } = await job.run(...secondNight);
  expect(report, stderr).toMatchObject({ rows_scored: 21, rows_reused: 20 });
  expect(job.server.requests.length - asked).toBe(1);
});

test("a pipe takes no budget: it keeps no answers, by which the next one would know what was spent", async () => {
  await using job = await promptJob({ model: { sampling: { max_tokens: 10 }, budget: { max_tokens: 600 } } });
  await expectEnd(job.command("pipe", job.spec), 64, "a pipe stores no answers");
});

test("the page about an attempt says what the run has spent", async () => {
  await using job = await promptJob({
    model: { budget: { price: { input: 1000, output: 1000 } } },
    report: { html: "page.html" },
  });
  await expectEnd(job.run(), 0);
  const { prompt, completion } = job.server.books;
  const page = await readFile(join(job.folder, "page.html"), "utf8");
  const cost = ((prompt + completion) / 1000).toFixed(2);
  expect(page).toContain(`20 answers, ${prompt} tokens in, ${completion} out, cost ${cost}`);
});

test("a refusal that quotes a long text of the row shows nothing of it", async () => {
  const secret = "patient Miller has diabetes and\n ";
  await using job = await promptJob({
    select: `SELECT i::INTEGER AS id, repeat('${secret}', 20) || i AS body FROM range(3) t(i)`,
    on_bad_row: "reject",
    max_rejects: "100%",
    server: { concurrency: 1 },
    reply: ({ text, number }) =>
      number > 1
        ? { status: 422, body: { detail: [{ type: "value_error", input: [{ role: "user", content: text }] }] } }
        : { content: "a" },
  });
  const run = await job.run();
  const rejects = await job.command("rejects", job.spec);
  expect(lastJson(run)).toMatchObject({ rows_rejected: 2 });
  expect(rejects.stdout).toContain("value_error");
  expect(run.stderr + run.stdout + rejects.stdout).not.toContain("Miller");
});

test.each(["replaced", "erased", "pruned", "damaged"] as const)(
  "a planned run goes on where the source of its reused answers was %s meanwhile",
  async (how) => {
    await using job = await promptJob({ ...nightly, server: { version: "m" } });
    await job.run("--param", "ds=2025-12-31");
    await job.run(...firstNight);
    job.server.reply = () => ({ status: 401, body: {} });
    await writeRows(join(job.folder, "texts.parquet"), rows(21));
    await expectEnd(job.run(...secondNight), 64);
    job.server.reply = ({ text }) => ({ content: text });
    const source = join(job.out, "dt=2026-01-01");
    if (how === "replaced") {
      await expectEnd(job.run(...firstNight, "--new-run"), 0);
    } else if (how === "erased") {
      await writeFile(join(job.folder, "keys.txt"), "5\n");
      await expectEnd(job.command("erase", job.spec, "--keys", join(job.folder, "keys.txt")), 67); // for the planned run, which is not finished
    } else if (how === "pruned") {
      await expectEnd(job.run("--param", "ds=2026-01-03"), 0);
      await expectEnd(job.command("prune", job.spec, "--keep", "1"), 0);
    } else {
      const part = (await readdir(source)).find((name) => name.startsWith("part-")) ?? "";
      await rm(join(source, part));
    }
    const { report, stderr } = await expectEnd(job.run(...secondNight), 0);
    const reused = { replaced: 21, erased: 19, pruned: 0, damaged: 0 }[how];
    expect(report).toMatchObject({ rows_scored: 21, rows_reused: reused });
    expect(stderr.includes("all rows are scored")).toBe(reused === 0);
  },
);

const [first, second] = ["2026-01-01", "2026-01-02"];

/** Carries out the second night with another memory, or another reader of stored rows. */
async function runWith(spec: string, others: (job: OpenedJob) => Partial<OpenedJob>): Promise<unknown> {
  await using job = await openJob(spec, { param: [`ds=${second}`] }, { attempt: alone });
  return await runJob({ ...job, ...others(job) });
}

test("a run of prompts whose earlier run does not fit in memory asks nothing; with more memory it asks only for new rows", async () => {
  await using job = await promptJob({
    params: { ds: "${today}" },
    select: rows(300),
    reuse: { key: ["id"] },
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    server: { version: "m" },
  });
  await expectReport(job.run("--param", `ds=${first}`), 0, { rows_scored: 300 });
  await writeRows(join(job.folder, "texts.parquet"), rows(305));

  const small = runWith(job.spec, ({ memory }) => ({ memory: { ...memory, storedBytes: 5000 } }));
  await expect(small).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringMatching(/run \S+: \d+ rows of it do not fit in memory/),
    hint: expect.stringContaining("set engine.memory: 1MiB or more"),
  });
  const failing = runWith(job.spec, ({ queries }) => ({
    queries: {
      ...queries,
      openStoredRows: () => Promise.reject(new JobError("DISK", "reading the rows of an earlier run: no space")),
    },
  }));
  await expect(failing).rejects.toMatchObject({ exitCode: 75, code: "DISK" });
  expect(job.server.requests).toHaveLength(300);

  await expectReport(job.run("--param", `ds=${second}`), 0, { rows_scored: 305, rows_reused: 300 });
  expect(job.server.requests).toHaveLength(305);
});
