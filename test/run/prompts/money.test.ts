import { existsSync } from "node:fs";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type ChatReply, type ChatRequest, tokensIn } from "../../support/chat-server.js";
import { type PromptJob, promptJob } from "../../support/prompt-job.js";
import { latch } from "../../support/waiting.js";
import { expectEnd, expectReport } from "../../support/cli.js";

const price = { input: 1000, cached_input: 100, output: 2000 };
const sampling = { max_tokens: 10 };
const rows = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;

/** Answers five requests, and refuses the token of the others. */
function fiveAnswers({ number }: ChatRequest): ChatReply {
  return number > 5 ? { status: 401, body: {} } : { content: "a" };
}

describe("money", () => {
  test("tokens and cost are those of the server's own books", async () => {
    await using job = await promptJob({ model: { budget: { price } } });

    const { report, code } = await job.run();

    const { answers, prompt, completion } = job.server.books;
    const spent = {
      answers,
      prompt_tokens: prompt,
      cached_tokens: 0,
      completion_tokens: completion,
      cost: Math.round(prompt * 1000 + completion * 2000) / 1e6,
    };
    expect({ code, answers }).toEqual({ code: 0, answers: 20 });
    expect(report["spending"]).toEqual({ ...spent, rows_reused: 0, requests_lost: 0, run: { ...spent } });
    const manifest = JSON.parse(await readFile(join(job.out, "_manifest.json"), "utf8")) as { attempt: object };
    expect(manifest.attempt).toMatchObject({ spending: { run: spent } });
  });

  test("cached tokens have a price of their own", async () => {
    await using job = await promptJob({
      reply: ({ text }) => ({ content: text, cached: 5 }),
      model: { budget: { price } },
    });

    const { report } = await job.run();

    const { prompt, completion } = job.server.books;
    expect(report["spending"]).toMatchObject({
      cached_tokens: 100,
      cost: Math.round((prompt - 100) * 1000 + 100 * 100 + completion * 2000) / 1e6,
    });
  });

  test("no request is sent whose worst case might exceed the budget, and a larger budget resumes without asking again", async () => {
    await using job = await promptJob({
      server: { concurrency: 1 },
      model: { sampling, budget: { max_tokens: 300 } },
      commit_rows: 5,
    });

    const stopped = await expectReport(job.run(), 67, { code: "BUDGET", exit_code: 67 });
    const { answers, prompt, completion } = job.server.books;
    expect(stopped.stderr).toContain(
      `the next request might exceed model.budget (max_tokens is 300, used ${prompt + completion}: paid, and the most that requests without an answer may have cost)`,
    );
    expect(answers).toBeGreaterThan(0);
    expect(answers).toBeLessThan(20);
    expect(prompt + completion).toBeLessThanOrEqual(300);

    await job.rewrite({ model: { sampling, budget: { max_tokens: 4000 } } });
    const ended = await expectReport(job.run(), 0, { status: "complete" });
    expect(job.server.books.answers).toBe(20);
    expect(job.server.requests).toHaveLength(20);
    const { prompt: all, completion: out } = job.server.books;
    expect(ended.report["spending"]).toMatchObject({
      run: { answers: 20, prompt_tokens: all, completion_tokens: out },
    });
    expect(await job.rows()).toHaveLength(20);
    expect(existsSync(join(job.out, "_infer-batch", String(ended.report["run_id"]), "answers"))).toBe(false);
  });

  test("a worker may spend its part of what is left when it starts", async () => {
    await using job = await promptJob({
      select: rows(40),
      server: { concurrency: 1 },
      model: { sampling, budget: { max_tokens: 500 } },
      commit_rows: 20,
    });

    await expectReport(job.run("--worker", "0/2"), 67, { code: "BUDGET" });
    const { prompt, completion } = job.server.books;
    expect(prompt + completion).toBeLessThanOrEqual(250);
  });

  test("rows that are asked first show that a run would exceed its budget, for little money", async () => {
    await using job = await promptJob({ select: rows(1000), model: { sampling, budget: { price, max_cost: 5 } } });

    const stopped = await expectReport(job.run(), 67, { code: "BUDGET" });
    expect(stopped.stderr).toMatch(/all rows would cost about \d\d\.\d, and model\.budget\.max_cost is 5/);
    expect(job.server.requests).toHaveLength(200);
    const spread = job.server.requests.map(({ text }) => Number(text.slice(5)));
    expect([Math.min(...spread), Math.max(...spread)]).toEqual([0, 959]);

    await job.rewrite({ model: { sampling, budget: { price, max_cost: 50 } } });
    const ended = await job.run();

    expect(ended, ended.stderr).toMatchObject({
      code: 0,
      report: { rows_scored: 1000, spending: { rows_reused: 200 } },
    });
    expect(job.server.requests).toHaveLength(1000);
  });

  test("prompts that repeat among the first rows are paid for once, and counted so", async () => {
    await using job = await promptJob({
      select: `SELECT i::INTEGER AS id, 'text ' || i % 5 AS body FROM range(400) t(i)`,
      model: { sampling, budget: { price, max_cost: 1 } },
    });

    const { report } = await expectReport(job.run(), 0, { rows_scored: 400 });
    expect(job.server.requests).toHaveLength(5);
    expect(report["spending"]).toMatchObject({ rows_reused: 395 });
  });

  test("a slow answer to one of the rows that are asked first does not hold up the others", async () => {
    const allAsked = latch<void>();
    let server: PromptJob["server"] | undefined;
    const reply = async ({ text }: ChatRequest): Promise<ChatReply> => {
      if (server?.requests.length === 400) {
        allAsked.resolve();
      }
      await (text === "text 0" ? allAsked.promise : undefined);
      return { content: text };
    };
    await using job = await promptJob({ select: rows(400), reply });
    ({ server } = job);

    await expectReport(job.run(), 0, { rows_scored: 400 });
    expect(job.server.requests).toHaveLength(400);
  });

  test("rows that are asked first show that too few answers are valid", async () => {
    const more = { on_bad_row: "reject", max_rejects: "1%" };
    await using job = await promptJob({
      select: rows(1000),
      reply: ({ text }: { text: string }): { content: string } => ({
        content: Number(text.slice(5)) % 10 === 0 ? "secret" : '{"label":"a"}',
      }),
      model: { response: { label: { enum: ["a"] } } },
      ...more,
    });

    const stopped = await expectReport(job.run(), 67, { code: "FIRST_ROWS" });
    expect(stopped.stderr).toContain(
      "180 answers are valid, fewer than 95%; 20 times: the answer is no object in JSON",
    );
    expect(stopped.stderr).not.toContain("secret");

    await job.rewrite({ max_rejects: "20%" });
    await expectReport(job.run(), 0, { rows_scored: 900, rows_rejected: 100 });
    expect(job.server.requests).toHaveLength(900 + 2 * 100);
  });

  test("a server without usage is counted with answers and without tokens", async () => {
    await using job = await promptJob({
      reply: (): { raw: string } => ({ raw: '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}' }),
    });

    await expectReport(job.run(), 0, { spending: { answers: 20, prompt_tokens: 0 } });
    expect(tokensIn("text")).toBe(1);
  });

  test("history shows what each run has paid for, also one that ended early and runs that later ones have replaced", async () => {
    await using job = await promptJob({
      server: { concurrency: 1 },
      model: { sampling, budget: { max_tokens: 300, price } },
    });
    const spent = (): object => {
      const { answers, prompt, completion } = job.server.books;
      return { answers, prompt_tokens: prompt, completion_tokens: completion };
    };
    await expectEnd(job.run(), 67);
    const first = spent();
    expect(first).not.toMatchObject({ answers: 0 });
    const historyOf = async (): Promise<unknown> =>
      JSON.parse((await job.command("history", job.spec, "--json")).stdout);
    expect(await historyOf()).toMatchObject({ runs: [{ status: "failed", spending: first }] });

    await job.rewrite({ model: { prompt: { user: "{{body}}!" }, sampling } });
    await expectEnd(job.run("--new-run"), 0);
    await expectEnd(job.run("--new-run"), 0);
    expect(await historyOf()).toMatchObject({
      runs: [
        { status: "published", spending: { answers: 20 } },
        { status: "published", spending: { answers: 20 } },
        { status: "abandoned", spending: first },
      ],
    });
    const { stdout } = await job.command("history", job.spec);
    expect(stdout.match(/20 answers, /g)).toHaveLength(2);
  });

  test("status shows what an unfinished run has kept where the token is not there, and without the answers if these cannot be read", async () => {
    await using job = await promptJob({ server: { concurrency: 1 }, reply: fiveAnswers });
    await expectEnd(job.run(), 64);
    await job.rewrite({ server: { token: "${file:gone}" } });
    const shown = await expectEnd(job.command("status", job.spec, "--json"), 0);
    expect(JSON.parse(shown.stdout)).toMatchObject({ status: "unfinished", paid: { kept: { answers: 5 } } });
    expect(shown.stdout).not.toContain("batches_error"); // no server is asked for batches
    const folder = join(job.out, "_infer-batch");
    const runId = (await readdir(folder)).find((name) => name !== "run.json") ?? "";
    await rm(join(folder, runId, "answers"), { recursive: true });
    await writeFile(join(folder, runId, "answers"), "not a folder");
    const hidden = await expectEnd(job.command("status", job.spec, "--json"), 0);
    expect(JSON.parse(hidden.stdout)).toMatchObject({ paid: { kept: null, kept_error: expect.any(String) } });
  });

  test.each<[string, string, object]>([
    ["NULL in a column of the prompt", "if(i % 60 = 59, NULL, 'text ' || i)", { max_rejects: 4 }],
    ["a NULL, and on_bad_row: fail", "if(i = 299, NULL, 'text ' || i)", { on_bad_row: "fail" }],
    ["prompts that are too long", "if(i % 60 = 59, repeat('long ', 100), 'text ' || i)", { max_rejects: "1%" }],
  ])("rows that cannot be asked end a run before anything is paid for: %s", async (_, body, keys) => {
    await using job = await promptJob({
      select: `SELECT i::INTEGER AS id, ${body} AS body FROM range(300) t(i)`,
      model: { prompt: { user: "{{body}}", max_input_tokens: 50 } },
      on_bad_row: "reject",
      commit_rows: 100,
      ...keys,
    });
    await expectEnd(job.run(), 65);
    expect(job.server.requests).toEqual([]);
    await job.rewrite({ on_bad_row: "reject", max_rejects: 5 });
    const { report } = await job.run();
    expect(report["rows_scored"]).toBe(job.server.requests.length);
  });
});
