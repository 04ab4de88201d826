import { expect, test } from "vitest";
import { promptJob } from "../../support/prompt-job.js";

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
