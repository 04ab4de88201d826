import { describe, expect, test } from "vitest";
import { type ChatReply, type ChatRequest, tokensIn } from "../../support/chat-server.js";
import { promptJob } from "../../support/prompt-job.js";
import { reject, rejectLines } from "../../support/rejects.js";
import { expectEnd } from "../../support/cli.js";

/** Row 1 has 60 bytes, the others 4: of "é", which has two. */
const select = "SELECT i::INTEGER AS id, repeat('é', if(i = 1, 30, 2)) AS body FROM range(3) t(i)";

const quoting = ({ text }: ChatRequest): ChatReply => ({
  status: 400,
  body: { error: { message: `no answer to ${text}`, type: "invalid_request_error" } },
});

describe("model.prompt.max_input_tokens", () => {
  test("a prompt of more tokens is rejected as too long, and is not asked", async () => {
    await using job = await promptJob({
      select,
      model: { prompt: { user: "{{body}}", max_input_tokens: 10 } },
      ...reject,
    });

    const ended = await job.run();

    expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_scored: 2, rows_rejected: 1 } });
    expect(await rejectLines(job.out)).toMatchObject([
      {
        row: 1,
        reason: "prompt_too_long",
        value: "the prompt has about 15 tokens, and model.prompt.max_input_tokens is 10",
      },
    ]);
    expect(job.server.requests.map(({ text }) => text)).toEqual(["éé"]);
  });

  test.each([
    ["end", "a: éééééééééééééééééé."],
    ["start", "a: éééééééééééééééééé."],
  ])("truncate cuts a value at its %s, and no character in half", async (side, text) => {
    const prompt = { user: "a: {{body}}.", max_input_tokens: 10, truncate: { column: "body", side } };
    await using job = await promptJob({ select, model: { prompt } });

    const ended = await job.run();

    expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_scored: 3 } });
    expect(job.server.requests.map((request) => request.text).toSorted()).toEqual(["a: éé.", text].toSorted());
  });

  test("a value is cut at the side that the spec names", async () => {
    const numbers = "SELECT i::INTEGER AS id, '0123456789' AS body FROM range(1) t(i)";
    for (const [side, text] of [
      ["start", "23456789"],
      ["end", "01234567"],
    ] as const) {
      const prompt = { user: "{{body}}", max_input_tokens: 2, truncate: { column: "body", side } };
      await using job = await promptJob({ select: numbers, model: { prompt } });
      await expectEnd(job.run(), 0);
      expect(job.server.requests.map((request) => request.text)).toEqual([text]);
    }
  });

  test("what a server quotes of a value that is cut at its start is in no log", async () => {
    const secrets = "SELECT i::INTEGER AS id, 'hello and welcome, the number is 4111-1111' AS body FROM range(1) t(i)";
    const prompt = { user: "{{body}}", max_input_tokens: 4, truncate: { column: "body", side: "start" } };
    await using job = await promptJob({ reply: quoting, select: secrets, model: { prompt } });
    const { stderr } = await expectEnd(job.run(), 65, "no answer to …");
    expect(stderr).not.toContain("4111");
  });

  test("a prompt that is too long without the value that is cut is rejected", async () => {
    const prompt = { user: "{{body}} and a long instruction", max_input_tokens: 2, truncate: { column: "body" } };
    await using job = await promptJob({ select, model: { prompt }, ...reject });

    expect(await job.run()).toMatchObject({ report: { rows_rejected: 3 } });
    expect(job.server.requests).toEqual([]);
  });
});

describe("model.prompt.answer_columns", () => {
  test("columns about answers have what the server said, and an attempt that takes kept answers writes the same", async () => {
    const columns = ["prompt_tokens", "completion_tokens", "finish_reason", "model"];
    let isDenied = true;
    const reply = ({ text }: ChatRequest): ChatReply =>
      isDenied && text === "text 19" ? { status: 401, body: {} } : { content: text, model: `m-${text.length}` };
    const keys = { model: { prompt: { user: "{{body}}", answer_columns: columns } }, server: { version: "*" } };
    await using job = await promptJob({ reply, ...keys });
    await expectEnd(job.run(), 64);
    const asked = job.server.requests.length;
    isDenied = false;

    await expectEnd(job.run(), 0);
    expect(job.server.requests.length - asked).toBeLessThan(20);
    expect(await job.rows()).toEqual(
      Array.from({ length: 20 }, (_, id) => ({
        id,
        response: `text ${id}`,
        prompt_tokens: BigInt(tokensIn(JSON.stringify([{ role: "user", content: `text ${id}` }]))),
        completion_tokens: 2n,
        finish_reason: "stop",
        model: `m-${id < 10 ? 6 : 7}`,
      })),
    );
  });
});
