import { describe, expect, test } from "vitest";
import type { ChatReply, ChatRequest } from "../../support/chat-server.js";
import { promptJob } from "../../support/prompt-job.js";
import { rejectLines } from "../../support/rejects.js";
import { expectEnd, expectReport } from "../../support/cli.js";

const response = {
  label: { enum: ["even", "odd"] },
  half: { type: "number", minimum: 0, maximum: 100 },
  id: { type: "integer" },
  is_odd: { type: "boolean" },
};

const reject = { on_bad_row: "reject", max_rejects: "100%" };

function idIn({ text }: Pick<ChatRequest, "text">): number {
  return Number(/\d+/.exec(text)?.[0]);
}

function valid(request: ChatRequest): { label: string; half: number; id: number; is_odd: boolean } {
  const id = idIn(request);
  return { label: id % 2 === 0 ? "even" : "odd", half: id / 2, id, is_odd: id % 2 === 1 };
}

const answerOf = (request: ChatRequest): ChatReply => ({ content: JSON.stringify(valid(request)) });

/** Answers all rows but one rightly. */
const except =
  (id: number, reply: (request: ChatRequest) => ChatReply) =>
  (request: ChatRequest): ChatReply =>
    idIn(request) === id ? reply(request) : answerOf(request);

type Failing = readonly [
  what: string,
  reply: ChatReply | ((request: ChatRequest) => ChatReply),
  asked: number,
  expected: { readonly reason: string; readonly value: unknown },
];

const invalid = (value: string) => ({ reason: "answer_invalid", value });
const fence = "```json";

/** Answers that cannot be used, how often they are asked for, and what is said of their rows. */
const failing: readonly Failing[] = [
  ["no JSON", { content: "It is secret!" }, 2, invalid("the answer is no object in JSON")],
  ["blank lines", { content: `${fence.padEnd(5000, "\n")}{` }, 2, invalid("the answer is no object in JSON")],
  ["another label", { content: '{"label":"secret"}' }, 2, invalid("the answer's `label` is not one of even, odd")],
  ["too large", { content: '{"label":"odd","half":101}' }, 2, invalid("the answer's `half` is more than 100")],
  ["a missing key", { content: '{"label":"odd"}' }, 2, invalid("the answer's `half` is missing")],
  ["no text", { content: null }, 2, invalid("the answer has no text")],
  [
    "a refusal",
    { content: null, refusal: "I cannot talk about secret things" },
    1,
    { reason: "answer_refused", value: "its answer is a refusal" },
  ],
  [
    "a filtered answer",
    { content: "", finish: "content_filter" },
    1,
    { reason: "answer_refused", value: "its answer was filtered" },
  ],
  [
    "an answer that is cut off",
    { content: '{"label":"od', finish: "length" },
    1,
    { reason: "answer_cut_off", value: "the answer is longer than model.sampling or the context allows" },
  ],
  [
    "a prompt that is too long",
    {
      status: 400,
      body: {
        error: {
          code: 400,
          message: "request (720 tokens) exceeds the available context size (512 tokens), try increasing it",
          type: "exceed_context_size_error",
        },
      },
    },
    1,
    {
      reason: "prompt_too_long",
      value:
        "the server answered 400: request (720 tokens) exceeds the available context size (512 tokens), try increasing it",
    },
  ],
  [
    "a prompt with more tokens than the account may send in a minute",
    {
      status: 429,
      body: {
        error: {
          message:
            "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully.",
          type: "tokens",
          code: "rate_limit_exceeded",
        },
      },
    },
    1,
    {
      reason: "prompt_too_long",
      value: expect.stringContaining("the server answered 429: Request too large for gpt-4o") as string,
    },
  ],
  [
    "a prompt that the server refuses, and quotes",
    ({ text }) => ({ status: 400, body: { error: { message: `bad words: ${text}` } } }),
    1,
    { reason: "model_failed", value: "the server answered 400: bad words: …" },
  ],
  ...(["[]", "null", "[{}]", '"none"'] as const).map(
    (choices): Failing => [
      `an answer with choices ${choices}`,
      { raw: `{"model":"m","choices":${choices}}` },
      2,
      { reason: "answer_invalid", value: "reading the answer: it has no `choices[0].message`" },
    ],
  ),
  [
    "an answer without choices",
    { raw: "{}" },
    2,
    { reason: "answer_invalid", value: "reading the answer: it has no `choices[0].message`" },
  ],
  [
    "an answer that is not UTF-8",
    { raw: Buffer.from('{"choices":[{"message":{"content":"\xe9"}}]}', "latin1") },
    2,
    { reason: "answer_invalid", value: "reading the answer: it is not UTF-8" },
  ],
  [
    "half of a character",
    { content: '{"label":"\\ud83d"}' },
    2,
    { reason: "answer_invalid", value: "the answer's `label` has half of a character, which no text can hold" },
  ],
  [
    "an error with status 200",
    { raw: '{"error":{"code":502,"message":"Provider said: secret words 3"}}' },
    5,
    {
      reason: "model_failed",
      value: "the answer has an error in place of a result: 502",
    },
  ],
  [
    "a page in place of JSON",
    { raw: "<html>secret words 3 are blocked" },
    5,
    { reason: "model_failed", value: "the answer is not JSON" },
  ],
  [
    "an answer that does not end",
    { raw: Buffer.alloc(65 * 1024 * 1024, " ") },
    5,
    { reason: "model_failed", value: "the answer has more than 64 MiB, far more than was asked for" },
  ],
];

describe("answers of a language model in columns", () => {
  test("columns of a response are typed, and the server is asked for their schema", async () => {
    await using job = await promptJob({
      reply: answerOf,
      model: { response },
      output: { columns: [], parquet: { path: "out" } },
    });

    await expectEnd(job.run(), 0);
    expect((await job.rows()).slice(0, 2)).toEqual([
      { label: "even", half: 0, id: 0n, is_odd: false },
      { label: "odd", half: 0.5, id: 1n, is_odd: true },
    ]);
    expect(job.server.requests[0]?.body["response_format"]).toEqual({
      type: "json_schema",
      json_schema: {
        name: "response",
        strict: true,
        schema: {
          type: "object",
          properties: {
            label: { type: "string", enum: ["even", "odd"] },
            half: { type: "number", minimum: 0, maximum: 100 },
            id: { type: "integer" },
            is_odd: { type: "boolean" },
          },
          required: ["label", "half", "id", "is_odd"],
          additionalProperties: false,
        },
      },
    });
  });

  test("an answer between Markdown's fences is read", async () => {
    await using job = await promptJob({
      reply: (request) => ({ content: `\`\`\`json\n${JSON.stringify(valid(request))}\n\`\`\`` }),
      model: { response: { label: response.label } },
    });

    await expectReport(job.run(), 0, { rows_scored: 20 });
  });

  test("a row whose answer cannot be used is a reject with the reason, and no other row is", async () => {
    const answered = 20;
    const rows = answered + failing.length;
    await using job = await promptJob({
      select: `SELECT i::INTEGER AS id, if(i < ${answered}, 'text ', 'secret words ') || i AS body FROM range(${rows}) t(i)`,
      reply(request) {
        const [, reply = answerOf] = failing[idIn(request) - answered] ?? [];
        return typeof reply === "function" ? reply(request) : reply;
      },
      model: { response },
      output: { columns: [], parquet: { path: "out" } },
      ...reject,
    });

    const ended = await expectReport(job.run(), 0, { rows_scored: answered, rows_rejected: failing.length });
    const rejects = await rejectLines(job.out);
    for (const [index, [what, , asked, expected]] of failing.entries()) {
      const row = answered + index;
      expect(rejects[index], what).toMatchObject({ row, ...expected });
      expect(job.server.requests.filter((request) => idIn(request) === row).length, what).toBe(asked);
    }
    expect(ended.stderr).not.toContain("secret");
  });

  test.each([
    [
      "no answer to a prompt",
      { raw: "{}" },
      64,
      "none of the first 20 requests has a result: it has no `choices[0].message`",
    ],
    ["an error", { raw: '{"error":"away"}' }, 75, "the answer has an error in place of a result (tried"],
    ["a page", { raw: "<html>" }, 75, "the answer is not JSON (tried"],
  ])("a server whose answers all have %s ends the run, and what it says is told", async (_what, reply, code, said) => {
    await using job = await promptJob({ reply: () => reply, ...reject, retry: { max_seconds: 3 } });

    const ended = await job.run();

    expect(ended.stderr).toContain(said);
    expect(ended.code).toBe(code);
  });

  test("an answer that is invalid once is asked for again", async () => {
    let times = 0;
    const reply = except(3, (request) => {
      times += 1;
      return times === 1 ? { content: "no JSON" } : answerOf(request);
    });
    await using job = await promptJob({ reply, model: { response: { label: response.label } } });

    await expectReport(job.run(), 0, { rows_scored: 20, rows_rejected: 0 });
    expect(times).toBe(2);
  });

  test("model.server.tries is how often a row is asked", async () => {
    const reply = except(3, () => ({ content: "no JSON" }));
    await using job = await promptJob({
      reply,
      model: { response: { label: response.label } },
      server: { tries: 4 },
      ...reject,
    });

    await expectReport(job.run(), 0, { rows_rejected: 1 });
    expect(job.server.requests).toHaveLength(19 + 4);
  });

  test("a bad row ends the run with its reason, without quoting the answer, when on_bad_row is fail", async () => {
    await using job = await promptJob({
      reply: except(3, () => ({ content: "secret" })),
      model: { response },
      output: { columns: [], parquet: { path: "out" } },
    });

    const ended = await expectEnd(job.run(), 65, "row 3: the answer is no object in JSON");
    expect(ended.stderr).not.toContain("secret");
  });

  test("a row whose column is NULL is a bad row, and is not asked", async () => {
    const select = "SELECT i::INTEGER AS id, if(i = 3, NULL, 'text ' || i) AS body FROM range(20) t(i)";
    await using job = await promptJob({ select, ...reject });

    await expectReport(job.run(), 0, { rows_scored: 19, rows_rejected: 1 });
    expect(await rejectLines(job.out)).toMatchObject([{ row: 3, reason: "null", column: "body" }]);
    expect(job.server.requests).toHaveLength(19);
  });

  test("equal prompts are asked once", async () => {
    const select = "SELECT i::INTEGER AS id, 'text ' || i % 4 AS body FROM range(400) t(i)";
    await using job = await promptJob({ select, commit_rows: 100 });

    await expectReport(job.run(), 0, { rows_scored: 400 });
    expect(job.server.requests).toHaveLength(4);
    expect(await job.rows()).toEqual(Array.from({ length: 400 }, (_, id) => ({ id, response: `text ${id % 4}` })));
  });

  test("texts are embedded into a list column", async () => {
    await using job = await promptJob({
      reply: (request: ChatRequest): ChatReply => ({ vector: [idIn(request), 0.5] }),
      model: { prompt: { input: "{{body}}" }, sampling: { dimensions: 2 } },
    });

    await expectEnd(job.run(), 0);
    expect((await job.rows())[7]).toEqual({ id: 7, embedding: { items: [7, 0.5] } });
    expect(job.server.requests[0]).toMatchObject({ path: "/v1/embeddings", body: { model: "m", dimensions: 2 } });
  });
});
