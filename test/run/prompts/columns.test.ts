import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd } from "../../support/cli.js";
import { promptJob } from "../../support/prompt-job.js";

const table = `SELECT i::INTEGER AS id, 'text ' || i AS body, i / 4 AS share, DATE '2026-01-01' + i::INTEGER AS day,
  {'age': i, 'name': 'n' || i} AS person, [i] AS list FROM range(8) t(i)`;

describe("columns of a prompt", () => {
  test("numbers, dates and fields of structs become texts, and stay what they are in the output", async () => {
    const user = "{{id}} {{share}} {{ day }} {{person.age}} {{person.name}} \\{{id}}";
    await using job = await promptJob({ select: table, model: { prompt: { user } } });

    await expectEnd(job.run(), 0);
    expect((await job.rows())[3]).toEqual({ id: 3, response: "3 0.75 2026-01-04 3 n3 {{id}}" });
  });

  test("a value is no template, and braces in it stay", async () => {
    const select = "SELECT 1 AS id, '{{id}} \\{{x}}' AS body";
    await using job = await promptJob({ select });

    await expectEnd(job.run(), 0);
    expect(await job.rows()).toEqual([{ id: 1, response: "{{id}} \\{{x}}" }]);
  });

  test("a prompt can be in a file in the spec's folder", async () => {
    await using job = await promptJob({ model: { prompt: { system: "Be brief.", file: "prompt.txt" } } });
    await writeFile(join(job.folder, "prompt.txt"), "Tell me:\n{{body}}\n");

    await expectEnd(job.run(), 0);
    expect((await job.rows())[3]).toEqual({ id: 3, response: "Tell me:\ntext 3\n" });
  });

  test("the other keys of a prompt hold for a prompt in a file", async () => {
    const truncate = { column: "body", side: "end" };
    const more = { max_input_tokens: 2, truncate, answer_columns: ["finish_reason"] };
    await using job = await promptJob({ model: { prompt: { file: "prompt.txt", ...more } } });
    await writeFile(join(job.folder, "prompt.txt"), "Q: {{body}}");

    await expectEnd(job.run(), 0);
    expect((await job.rows())[3]).toEqual({ id: 3, response: "Q: text ", finish_reason: "stop" });
    expect(await job.run()).toMatchObject({ code: 0, report: { status: "already_complete" } });
  });

  test.each<[string, object, string | undefined]>([
    ["a column that is not there", { user: "{{boddy}}" }, undefined],
    ["a list column", { user: "{{list}}" }, undefined],
    ["a file that is not there", { file: "nowhere.txt" }, undefined],
    ["a file without a column", { file: "prompt.txt" }, "Tell me a joke"],
    [
      "a file without the column that is cut",
      { file: "prompt.txt", max_input_tokens: 9, truncate: { column: "id", side: "end" } },
      "{{body}}",
    ],
    ["a file with a broken place", { file: "prompt.txt" }, "{{body}} {{ oops"],
  ])("%s is refused before anything is asked", async (_what, prompt, text) => {
    await using job = await promptJob({ select: table, model: { prompt } });
    await (text === undefined ? undefined : writeFile(join(job.folder, "prompt.txt"), text));

    const { stderr } = await expectEnd(job.command("validate", job.spec), 64);
    expect(stderr.replaceAll(job.folder, "FOLDER").replaceAll(job.server.url, "URL")).toMatchSnapshot();
    expect(job.server.requests).toEqual([]);
  });

  test("a prompt that is changed in mid-run is refused, and a moved file is not", async () => {
    await using job = await promptJob({ model: { prompt: { file: "prompt.txt" } }, commit_rows: 5 });
    await writeFile(join(job.folder, "prompt.txt"), "{{body}}");
    job.server.reply = ({ number, text }) =>
      number < 8 ? { content: text } : { status: 401, body: { error: { message: "no" } } };
    await expectEnd(job.run(), 64);

    job.server.reply = ({ text }) => ({ content: text });
    await writeFile(join(job.folder, "moved.txt"), "{{body}}?");
    await job.rewrite({ model: { prompt: { file: "moved.txt" }, sampling: { temperature: 0 } } });
    await expectEnd(
      job.run(),
      66,
      "model.prompt is another text than planned",
      'model.sampling is {"temperature":0}, planned {}',
    );

    await writeFile(join(job.folder, "moved.txt"), "{{body}}");
    await job.rewrite({ model: { prompt: { file: "moved.txt" } } });
    expect(await job.run()).toMatchObject({ code: 0, report: { status: "complete" } });
    expect(job.server.books.answers).toBe(20);
  });
});

describe("commands for language models", () => {
  test("plan estimates prompts, tokens and cost, and asks nothing", async () => {
    const budget = { max_cost: 20, price: { input: 1000, output: 2000 } };
    await using job = await promptJob({ model: { sampling: { max_tokens: 10 }, budget } });

    const { stdout } = await expectEnd(job.command("plan", job.spec), 0);
    expect(stdout).toContain(
      "prompts  about 20 prompts, 153 tokens in (by bytes, ±40%), at most 200 out, cost up to about 0.55 of max_cost 20",
    );
    const json = await job.command("plan", job.spec, "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({
      estimate: { requests: 20, prompt_tokens: 153, most_completion_tokens: 200, most_cost: 0.553 },
    });
    expect(job.server.requests).toEqual([]);
  });

  test("doctor asks whether the server answers, and nothing that costs money", async () => {
    await using job = await promptJob({ model: { sampling: { max_tokens: 10 }, budget: { max_tokens: 100 } } });

    const { code, stdout } = await job.command("doctor", job.spec);

    expect({ code, stdout: stdout.replaceAll(job.server.url, "URL") }).toMatchSnapshot();
    expect(job.server.requests).toEqual([]);
  });

  test("preview asks as many rows as it shows", async () => {
    await using job = await promptJob({ select: "SELECT i AS id, 'text ' || i AS body FROM range(1000) t(i)" });

    const { stdout } = await expectEnd(job.command("preview", job.spec, "--limit", "3", "--where", "id >= 1"), 0);
    expect(stdout).toContain("text 2");
    expect(job.server.requests.length).toBeLessThan(10);
  });
});

test("each row is asked once, and its answer is the text column response", async () => {
  await using job = await promptJob({ model: { prompt: { system: "Say it again.", user: "{{body}}!" } } });

  const ended = await job.run();

  expect(ended, ended.stderr).toMatchObject({
    code: 0,
    report: { status: "complete", provider: "openai", rows_scored: 20 },
  });
  expect(await job.rows()).toEqual(Array.from({ length: 20 }, (_, id) => ({ id, response: `text ${id}!` })));
  expect(job.server.requests).toHaveLength(20);
  expect(job.server.requests[0]?.body).toEqual({
    model: "m",
    messages: [
      { role: "system", content: "Say it again." },
      { role: "user", content: expect.stringMatching(/^text \d+!$/) },
    ],
  });
});
