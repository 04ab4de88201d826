import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { runCli } from "../../support/cli.js";
import { lastJson } from "../../support/nights.js";
import { promptJob } from "../../support/prompt-job.js";
import { writeRows } from "../../support/parquet.js";
import { latch } from "../../support/waiting.js";

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

test("with dedupe, a row without a prompt is the only one that is rejected", async () => {
  const select = `SELECT i::INTEGER AS id, CASE WHEN i = 2 THEN NULL WHEN i < 2 THEN 'same' WHEN i = 5 THEN '' ELSE 'text ' || i END AS body FROM range(6) t(i)`;
  await using job = await promptJob({ select, dedupe: true, on_bad_row: "reject", max_rejects: "90%" });
  const { report, stderr } = await job.run();
  expect(report, stderr).toMatchObject({ rows_scored: 5, rows_rejected: 1 });
});

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
  expect((await job.run(...firstNight)).code).toBe(0);
  expect(job.server.requests).toHaveLength(300);
  await job.rewrite({ ...nightly, server: { version: "m" }, model: { ...model, budget: { max_tokens: 1000 } } });
  const { code, stderr } = await job.run(...secondNight);
  expect(code, stderr).toBe(0);
  expect(job.server.requests).toHaveLength(300);
});

test("answers to another prompt are not reused", async () => {
  await using job = await promptJob({ ...nightly, server: { version: "m" } });
  expect((await job.run(...firstNight)).code).toBe(0);
  await job.rewrite({ ...nightly, server: { version: "m" }, model: { prompt: { user: "Translate: {{body}}" } } });
  const { report, stderr } = await job.run(...secondNight);
  expect(report, stderr).toMatchObject({ rows_scored: 20, rows_reused: 0 });
  expect(job.server.requests).toHaveLength(40);
});

test("reuse is refused for servers whose models may have any name", async () => {
  await using job = await promptJob({ ...nightly, server: { version: "*" } });
  const { code, stderr } = await job.run(...firstNight);
  expect([code, stderr]).toEqual([64, expect.stringContaining("the server names no version of the model")]);
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
});

test("an answer that is lost on a connection that was used before is counted as lost", async () => {
  const answer = { choices: [{ message: { content: "a" }, finish_reason: "stop" }] };
  await using job = await promptJob({
    select: rows(3),
    server: { concurrency: 1 },
    reply: async ({ number }) => {
      await sleep(20);
      return number === 2 || number === 4 ? { cut: true } : { raw: JSON.stringify({ model: "m", ...answer }) };
    },
  });
  const { report, stderr } = await job.run();
  expect(job.server.requests, stderr).toHaveLength(5);
  expect(report["spending"]).toMatchObject({ requests_lost: 2 });
});

test("a budget holds over attempts where the server names no tokens", async () => {
  await using job = await promptJob({
    server: { concurrency: 1 },
    model: { sampling: { max_tokens: 10 }, budget: { max_tokens: 600 } },
    reply: () => ({ raw: '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}' }),
  });
  expect((await job.run()).code).toBe(67);
  const asked = job.server.requests.length;
  expect(asked).toBeGreaterThan(0);
  expect((await job.run()).code).toBe(67);
  expect(job.server.requests).toHaveLength(asked);
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
