import { expect, test } from "vitest";
import { expectEnd, runCli } from "../../support/cli.js";
import { promptJob } from "../../support/prompt-job.js";
import { usePostgres } from "../../support/postgres.js";
import { latch } from "../../support/waiting.js";

const postgres = usePostgres();

const outputOf = (url: string): object => ({ columns: ["id"], postgres: { url, table: "scores.labels" } });

postgres.describe("answers of a language model in a table", () => {
  test("a table has the columns about answers, and history what the run has spent", async () => {
    await using database = await postgres.server().createDatabase();
    const output = { columns: ["id"], postgres: { url: database.url, table: "scores.labels" } };
    const prompt = {
      user: "{{body}}",
      answer_columns: ["prompt_tokens", "completion_tokens", "finish_reason", "model"],
    };
    await using job = await promptJob({ output, model: { prompt, budget: { price: { input: 1000, output: 1000 } } } });

    await expectEnd(job.run(), 0);
    const { answers, prompt: tokens, completion } = job.server.books;
    const columns =
      "sum(prompt_tokens)::int AS prompt, sum(completion_tokens)::int AS completion, count(*)::int AS rows";
    const sums = await database.query(
      `SELECT ${columns}, min(finish_reason) AS finish, max(model) AS model FROM scores.labels`,
    );
    expect(sums).toEqual([{ prompt: tokens, completion, rows: 20, finish: "stop", model: "m" }]);
    const cost = Math.round((tokens + completion) * 1000) / 1e6;
    const spending = { answers, prompt_tokens: tokens, cached_tokens: 0, completion_tokens: completion, cost };
    const { stdout } = await job.command("history", job.spec, "--json");
    expect(JSON.parse(stdout)).toMatchObject({ runs: [{ status: "published", spending }] });
  });

  test("plan ends with 64 as run does for a role that may not create the table in which answers are kept", async () => {
    await using database = await postgres.server().createDatabase();
    await using job = await promptJob({ output: outputOf(database.url) });
    await expectEnd(job.run(), 0);
    await database.query(`CREATE ROLE asker LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO asker;
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA scores, infer_batch TO asker`);
    const url = new URL(database.url);
    url.username = "asker";
    try {
      await job.rewrite({ name: "others", output: outputOf(url.href) });
      const asked = job.server.books.answers;
      for (const verb of ["plan", "run"]) {
        await expectEnd(job.command(verb, job.spec), 64, "permission denied for schema infer_batch");
      }
      expect(job.server.books.answers).toBe(asked);
      await database.query("GRANT CREATE ON SCHEMA infer_batch TO asker");
      await expectEnd(job.command("plan", job.spec), 0);
    } finally {
      await database.query("DROP OWNED BY asker; DROP ROLE asker");
    }
  });

  test("a prompt that two workers pay for at the same moment counts twice", async () => {
    await using database = await postgres.server().createDatabase();
    const both = latch<void>();
    let asked = 0;
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, 'the same' AS body FROM range(20) t(i)",
      commit_rows: 10,
      output: { columns: ["id"], postgres: { url: database.url, table: "scores.labels" } },
      model: { budget: { price: { input: 1000, output: 1000 } } },
      reply: async ({ text }) => {
        asked += 1;
        await (asked === 2 ? both.resolve() : both.promise); // each worker has read what the other one had kept: nothing
        return { content: text };
      },
    });

    const ends = await Promise.all(
      ["0/2", "1/2"].map((worker) => runCli(["run", job.spec, "--no-progress", "--json", "--worker", worker])),
    );

    expect(ends.map(({ code }) => code)).toEqual([0, 0]);
    const { answers, prompt: tokens, completion } = job.server.books;
    expect(answers).toBe(2);
    const spending = { answers, prompt_tokens: tokens, completion_tokens: completion };
    const { stdout } = await job.command("history", job.spec, "--json");
    expect(JSON.parse(stdout)).toMatchObject({ runs: [{ spending }] });
  });
});
