import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createEvent } from "#src/base/promises.js";
import { type ChatReply, type ChatRequest, serveChat } from "../../support/chat-server.js";
import { promptJob } from "../../support/prompt-job.js";
import { rejectLines } from "../../support/rejects.js";
import { firstOf } from "../../support/torture.js";
import { expectEnd, expectReport } from "../../support/cli.js";

const texts = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;
const echo = ({ text }: Pick<ChatRequest, "text">): ChatReply => ({ content: text });
const refusal = (status: number, error: object): ChatReply => ({ status, body: { error } });

/** Answers a row's first requests with these, one after the other. */
const first =
  (replies: readonly ChatReply[], text = "text 3") =>
  (request: ChatRequest): ChatReply => {
    const seen = times.get(request.text) ?? 0;
    times.set(request.text, seen + 1);
    return (request.text === text ? replies[seen] : undefined) ?? echo(request);
  };
const times = new Map<string, number>();

describe("servers of language models", () => {
  test("a fault that may pass is asked again, and no row is rejected", async () => {
    times.clear();
    const limited = { error: { message: "Rate limit reached", code: "rate_limit_exceeded" } };
    const faults: readonly ChatReply[] = [
      { status: 429, headers: { "retry-after": "0" }, body: limited },
      refusal(429, { message: "slow down" }),
      refusal(500, { message: "oops" }),
      refusal(503, { message: "overloaded" }),
      { raw: '{"choices":[{"mess' },
      { cut: true },
    ];
    await using job = await promptJob({
      reply(request) {
        const fault = faults[Number(request.text.slice("text ".length))];
        return first(fault === undefined ? [] : [fault, fault], request.text)(request);
      },
    });

    const ended = await expectReport(job.run(), 0, { rows_scored: 20, server: { retries: 2 * faults.length } });
    // Nobody knows what an answer that is cut off, and a cut connection, have cost.
    expect(ended.report["spending"]).toMatchObject({ answers: 20, requests_lost: 4 });
  });

  test("a row that is refused for its rate is asked until it is answered, for longer than retry.max_seconds while others are answered", async () => {
    // Only this request must wait: its next try is a second later, which is all the time that retries have.
    const limited = {
      status: 429,
      headers: { "retry-after": "1", "x-ratelimit-remaining-requests": "9" },
      body: { error: { message: "slow down" } },
    };
    let tried = 0;
    await using job = await promptJob({
      reply: (request: ChatRequest): ChatReply => {
        tried += request.text === "text 3" ? 1 : 0;
        return request.text === "text 3" && tried <= 2 ? limited : echo(request);
      },
      server: { concurrency: 2 }, // most of the others are asked after the first refusal
      retry: { max_seconds: 1 },
    });

    await expectReport(job.run(), 0, { rows_scored: 20 });
    expect(tried).toBe(3);
  });

  test("a row that makes the server fail is rejected, while the server answers others", async () => {
    await using job = await promptJob({
      reply: (request: ChatRequest): ChatReply =>
        request.text === "text 3" ? refusal(500, { message: "assertion failed" }) : echo(request),
      on_bad_row: "reject",
      max_rejects: "100%",
    });

    await expectReport(job.run(), 0, { rows_scored: 19, rows_rejected: 1 });
    expect(await rejectLines(job.out)).toMatchObject([
      { row: 3, reason: "model_failed", value: "the server answered 500: assertion failed" },
    ]);
  });

  test("a server that fails on each row rejects none of them", async () => {
    await using job = await promptJob({
      reply: (): ChatReply => refusal(500, { message: "engine dead" }),
      on_bad_row: "reject",
      max_rejects: "100%",
      retry: { max_seconds: 2 },
    });

    await expectReport(job.run(), 75, { code: "NETWORK" });
  });

  const refusals: readonly [string, ChatReply, number, string][] = [
    [
      "an account without quota",
      refusal(429, { message: "You exceeded your current quota", code: "insufficient_quota" }),
      67,
      "QUOTA",
    ],
    ["an account without balance", refusal(402, { message: "Insufficient Balance" }), 67, "QUOTA"],
    ["a wrong token", refusal(401, { message: "Invalid API Key" }), 64, "PERMISSION"],
    ["a forbidden model", refusal(403, { message: "no access" }), 64, "PERMISSION"],
    ["an unknown model", refusal(404, { message: "The model `m` does not exist" }), 64, "FILE_MISSING"],
    [
      "requests that are refused one and all",
      refusal(400, { message: "temperature is not supported" }),
      64,
      "MODEL_INVALID",
    ],
  ];

  test.each(firstOf(refusals, 3))(
    "%s ends the attempt, and answers so far are kept",
    async (_what, reply, exitCode, code) => {
      let answered = 0;
      const refuses = (request: ChatRequest): ChatReply => {
        if (exitCode === 67 && answered < 5) {
          answered += 1;
          return echo(request);
        }
        return reply;
      };
      const select = "SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(300) t(i)";
      await using job = await promptJob({ select, reply: refuses, server: { token: "s3cret" } });

      const ended = await expectReport(job.run(), exitCode, { code });
      expect(job.server.requests[0]?.headers).toMatchObject({ authorization: "Bearer s3cret" });
      expect(ended.stderr).not.toContain("s3cret");

      job.server.reply = echo;
      const before = job.server.requests.length;
      expect(before).toBeLessThan(100); // of 200 rows that are asked first: the first error stops the others
      await expectReport(job.run(), 0, { rows_scored: 300 });
      expect(job.server.requests.length - before).toBe(300 - answered);
    },
  );

  test("a server that takes no response_format is asked without it, equal prompts once, and answers are checked", async () => {
    const later = createEvent();
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, 'text ' || if(i = 10, 0, i) AS body FROM range(20) t(i)",
      async reply({ text, body }: ChatRequest): Promise<ChatReply> {
        if ("response_format" in body) {
          return refusal(400, { message: "response_format json_schema is not supported by this model" });
        }
        await (text === "text 0" ? later.happened : text === "text 11" && later.set());
        return { content: '{"label":"a"}' };
      },
      model: { response: { label: { enum: ["a", "b"] } } },
      server: { concurrency: 3 },
    });

    const ended = await expectReport(job.run(), 0, { rows_scored: 20 });
    expect(ended.stderr.match(/takes no response_format/g)).toHaveLength(1);
    expect(job.server.books.answers).toBe(19);
  });

  test("a server that takes no max_tokens is sent max_completion_tokens", async () => {
    await using job = await promptJob({
      reply: (request: ChatRequest): ChatReply =>
        "max_tokens" in request.body
          ? refusal(400, {
              message:
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
              param: "max_tokens",
              code: "unsupported_parameter",
            })
          : echo(request),
      model: { sampling: { max_tokens: 7 } },
    });

    await expectReport(job.run(), 0, { rows_scored: 20 });
    expect(job.server.requests.at(-1)?.body).toMatchObject({ max_completion_tokens: 7 });
  });

  test("an answer of another model in mid-run is 66, unless any name is allowed", async () => {
    await using job = await promptJob({
      reply: (request: ChatRequest): ChatReply => ({
        content: request.text,
        model: request.number > 10 ? "m-2026-11-02" : "m-2026-10-01",
      }),
      commit_rows: 5,
      server: { concurrency: 1 },
    });

    const ended = await expectReport(job.run(), 66, { code: "MODEL_CHANGED" });
    expect(ended.stderr).toContain("names model m-2026-11-02, and earlier answers of this run name m-2026-10-01");
    await expectEnd(job.run(), 66);
    await job.rewrite({
      name: "any-model",
      output: { columns: ["id"], parquet: { path: "out2" } },
      server: { version: "*" },
    });
    await expectEnd(job.run(), 0);
  });

  test("model.server.version names the model that answers must have", async () => {
    await using job = await promptJob({ server: { version: "m-2026-10-01" } });

    await expectEnd(job.run(), 66, "the answer names model m, and model.server.version is m-2026-10-01");
  });

  test("hundreds of requests are in flight at once", async () => {
    const select = "SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(600) t(i)";
    await using job = await promptJob({
      select,
      reply: async (request: ChatRequest): Promise<ChatReply> => {
        await new Promise((resolve) => {
          setTimeout(resolve, 50);
        });
        return echo(request);
      },
    });

    await expectReport(job.run(), 0, { rows_scored: 600 });
    expect(job.server.mostInFlight).toBeGreaterThan(60);
  });

  test("several servers share the requests, and one that fails on all of them is left out", async () => {
    await using other = await serveChat(echo);
    await using broken = await serveChat(() => ({ status: 503, body: { error: { message: "overloaded" } } }));
    await using job = await promptJob({ reply: echo, select: texts(300) });
    const urls = [job.server.url, other.url, broken.url];
    await job.rewrite({ server: { url: urls } });

    const { report } = await expectEnd(job.run(), 0);
    expect(report).toMatchObject({ rows_scored: 300, rows_rejected: 0, spending: { answers: 300 } });
    expect(job.server.books.answers).toBeGreaterThan(0);
    expect(other.books.answers).toBeGreaterThan(0);
    expect(job.server.books.answers + other.books.answers).toBe(300);
    expect(broken.requests.length).toBeLessThan(100);
  });

  test.each([401, 400])(
    "a key that a server quotes in a refusal (%i) is in no message, file or rejected row",
    async (status) => {
      const secret = "sk-very-secret-key";
      await using job = await promptJob({
        reply: ({ text, headers }: ChatRequest): ChatReply =>
          text === "text 3" || status === 401
            ? refusal(status, { message: `no such key: ${headers.authorization ?? ""}` })
            : echo({ text }),
        server: { token: secret },
        on_bad_row: "reject",
        max_rejects: "100%",
      });

      const { code, stderr, stdout } = await job.run();

      expect([code, /no such key: \*\*\*/.test(stderr)]).toEqual(status === 401 ? [64, true] : [0, false]);
      const files = await Promise.all(
        (await readdir(job.out, { recursive: true, withFileTypes: true }))
          .filter((entry) => entry.isFile())
          .map(({ parentPath, name }) => readFile(join(parentPath, name), "latin1")),
      );
      expect(files.join("\n")).toContain("no such key: ***");
      expect([stdout, stderr, ...files].join("\n")).not.toContain("very-secret");
    },
  );

  test("no prompt, answer or key is in the log, also with --log-level debug", async () => {
    const secret = "sk-very-secret-key";
    await using job = await promptJob({ reply: first([{ content: "answer 3" }]), server: { token: secret } });

    const { stderr, stdout } = await expectEnd(
      job.command("run", job.spec, "--no-progress", "--log-level", "debug"),
      0,
    );
    expect(`${stdout}${stderr}`).not.toMatch(/text \d|answer 3|very-secret/);
    expect(stderr).toContain("DEBUG");
  });
});
