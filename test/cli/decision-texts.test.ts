import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { heldNight, nightlyJob } from "../support/nights.js";

test("approve of a night that is published names the night that is held, and of the held one confirms the baseline", async () => {
  const nights = await nightlyJob(scratch.path);
  const runId = await heldNight(nights);

  const other = await nights.night("approve", "2026-11-20");
  expect([other.code, other.stdout.split("\n")]).toEqual([
    0,
    [
      expect.stringMatching(/: already published, 442 rows -> /),
      expect.stringMatching(
        new RegExp(
          `^run ${runId} in \\S+ is held by its checks; to publish it: infer-batch approve .* --run ${runId};`,
        ),
      ),
      "",
    ],
  ]);

  for (const [reasons, said] of [
    [["--reason", ""], "not empty"],
    [["--reason", " "], "not empty"],
    [["--reason", "one", "--reason", "two"], "given before"],
  ] as const) {
    const refused = await nights.night("approve", "2026-11-21", ...reasons);
    expect([refused.code, refused.stdout, refused.stderr]).toEqual([64, "", expect.stringContaining(said)]);
  }

  const approved = await nights.night("approve", "2026-11-21", "--reason", "a small day");
  expect(approved.stdout).toMatch(/: published, 50 rows, 392 filtered out -> \S+; later runs may resemble it\n$/);
  const again = await nights.night("approve", "2026-11-21");
  expect(again.stdout).toMatch(/: already published, .*; later runs may resemble it\n$/);
});
