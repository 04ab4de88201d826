import { copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder } from "../../support/cli.js";
import { type PromptJob, promptJob, type PromptJobOptions } from "../../support/prompt-job.js";
import { textsFile } from "../../support/text-job.js";

const fixtures = join(projectFolder, "fixtures/tokenizers");
const jsonOf = async <T>(name: string): Promise<T> => JSON.parse(await readFile(join(fixtures, name), "utf8")) as T;

/** The ids that Python's tokenizers gives the texts of `textsFile`, cut off at 64. */
async function pythonIds(name: "bert" | "roberta"): Promise<readonly (readonly number[])[]> {
  return (await jsonOf<Record<string, number[][]>>("ids.json"))[name] ?? [];
}

const longest = 64;

/** A job over the first texts, without those that Python's ids were cut off for. Its tokenizer is a copy of its own. */
async function textsJob(
  tokenizer: "bert" | "roberta",
  keys: PromptJobOptions = {},
): Promise<PromptJob & { readonly tokens: number; readonly count: number }> {
  const ids = (await pythonIds(tokenizer)).slice(0, 200).entries();
  const short = [...ids].filter(([, { length }]) => length < longest);
  const chosen = short.map(([index]) => index).join(", ");
  const job = await promptJob({ select: `SELECT id, body FROM '${textsFile}' WHERE id IN (${chosen})`, ...keys });
  await copyFile(join(fixtures, `${tokenizer}.json`), join(job.folder, "tokenizer.json"));
  const tokens = short.reduce((sum, [, { length }]) => sum + length, 0);
  return { ...job, tokens, count: short.length };
}

async function estimateOf(job: PromptJob): Promise<Readonly<Record<string, unknown>>> {
  const { stdout } = await expectEnd(job.command("plan", job.spec, "--json"), 0);
  return (JSON.parse(stdout) as { estimate: Record<string, unknown> }).estimate;
}

const tokenizer = "tokenizer.json";

test.each(["bert", "roberta"] as const)(
  "plan counts the tokens of texts that are embedded as Python's tokenizers does: %s",
  async (name) => {
    await using job = await textsJob(name, { model: { prompt: { input: "{{body}}", tokenizer } } });

    const estimate = await estimateOf(job);

    expect(job.count).toBeGreaterThan(80);
    expect(estimate).toMatchObject({
      requests: job.count,
      prompt_tokens: job.tokens,
      prompt_tokens_error: 0,
      prompt_tokens_by: "tokenizer.json",
    });
    const { stdout } = await job.command("plan", job.spec);
    expect(stdout).toContain(` tokens in (by tokenizer.json in ${job.count} rows, ±0%)`);
    expect(job.server.requests).toEqual([]);
  },
);

/** Special tokens that BERT's tokenizer adds to a text; a chat template has its own. */
const bertAdds = 2;

test("plan counts the messages of a chat without the tokenizer's own special tokens, and says what it takes for the chat template", async () => {
  await using job = await textsJob("bert", { model: { prompt: { system: "{{body}}", user: "{{body}}", tokenizer } } });

  const template = 9;
  const inTexts = 2 * (job.tokens - bertAdds * job.count);
  expect(await estimateOf(job)).toMatchObject({
    prompt_tokens: inTexts + template * job.count,
    prompt_tokens_error: Math.ceil((1000 * template * job.count) / (inTexts + template * job.count)) / 1000,
  });
  const { stdout } = await job.command("plan", job.spec);
  expect(stdout).toMatch(/by tokenizer\.json in \d+ rows, ±\d+%, with about 9 a prompt for the chat template\)/);
});

test("plan counts long texts whole, although the tokenizer's file cuts them off", async () => {
  const body = "'one two three ' || repeat('four five ', 500)";
  await using job = await promptJob({
    select: `SELECT 1 AS id, ${body} AS body`,
    model: { prompt: { input: "{{body}}", tokenizer } },
  });
  const file = JSON.parse(await readFile(join(fixtures, "bert.json"), "utf8")) as object;
  const truncation = { max_length: 8, stride: 0, strategy: "LongestFirst", direction: "Right" };
  await writeFile(join(job.folder, tokenizer), JSON.stringify({ ...file, truncation }));

  expect((await estimateOf(job))["prompt_tokens"]).toBeGreaterThanOrEqual(1003 + bertAdds);
});

test("a tokenizer belongs to the attempt: a run goes on and stays complete with another one, or when its file is gone", async () => {
  const prompt = { user: "{{body}}", tokenizer };
  await using job = await promptJob({
    server: { concurrency: 1 },
    model: { prompt, sampling: { max_tokens: 10 }, budget: { max_tokens: 200 } },
    commit_rows: 5,
  });
  expect(await job.run()).toMatchObject({ code: 67, report: { code: "BUDGET" } });
  const before = job.server.books.answers;

  const changed = { prompt: { ...prompt, tokenizer: "other.json" }, sampling: { max_tokens: 10 } };
  await job.rewrite({ model: changed });
  const ended = await job.run();

  expect(ended, ended.stderr).toMatchObject({ code: 0, report: { status: "complete", rows_scored: 15 } });
  expect(before).toBeGreaterThan(0);
  expect(job.server.books.answers).toBe(20);
  await job.rewrite({ model: { ...changed, prompt: { user: "{{body}}" } } });
  expect(await job.run()).toMatchObject({ code: 0, report: { status: "already_complete" } });
});

test.each([
  ["missing", undefined, "there is no such file"],
  ["no tokenizer", "{}", "it is not a tokenizer.json"],
  ["a tokenizer that the library refuses", '{"model":{"type":"BPE","vocab":{}}}', "loading tokenizer tokenizer.json: "],
])(
  "plan counts bytes as run needs no tokenizer, and validate ends with 64, if the tokenizer's file is %s",
  async (_, text, found) => {
    await using job = await promptJob({ model: { prompt: { user: "{{body}}", tokenizer } } });
    const path = join(job.folder, tokenizer);
    await (text === undefined ? rm(path, { force: true }) : writeFile(path, text));
    const place = /reading \S*job\.yaml:\d+:\d+: model\.prompt\.tokenizer: /;
    await expectEnd(job.command("validate", job.spec), 64, place, found, "hint:");

    const planned = await expectEnd(job.command("plan", job.spec), 0);
    expect(planned.stdout).toMatch(/^prompts .* tokens in \(by bytes, ±\d+%\)/m);
    expect(planned.stdout).toMatch(/^untried {2}tokens were not counted: reading .*model\.prompt\.tokenizer: /m);
    expect(planned.stdout).toContain(found);
    expect(await estimateOf(job)).toMatchObject({ prompt_tokens_by: "bytes" });
    await expectEnd(job.run(), 0);
  },
);

test("a tokenizer at a web address is refused", async () => {
  await using job = await promptJob({ model: { prompt: { user: "{{body}}", tokenizer: "https://x/tokenizer.json" } } });
  await expectEnd(
    job.command("plan", job.spec),
    64,
    "expected a file, s3://, gs://, az:// or hf://: a tokenizer is read from these only",
  );
});

test("plan says what a sample leaves unknown: the line that docs/prompts.md shows", async () => {
  await using job = await promptJob({
    select: `SELECT id, body FROM '${textsFile}', range(20) t(i) WHERE length(body) BETWEEN 20 AND 200 ORDER BY (id * 7919 + i * 104729) % 6599, id, i`,
    model: { prompt: { user: "Is this about billing? {{body}}", tokenizer }, sampling: { max_tokens: 50 } },
  });
  await copyFile(join(fixtures, "roberta.json"), join(job.folder, tokenizer));
  const { stdout } = await job.command("plan", job.spec);
  const line = stdout.split("\n").find((one) => one.startsWith("prompts"));
  expect(await readFile(join(projectFolder, "docs/prompts.md"), "utf8")).toContain(`\n${line}\n`);
});
