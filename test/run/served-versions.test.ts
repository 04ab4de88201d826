import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { servedJob } from "../support/served-job.js";

const signature = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
const warning = "the server names no version of its model, so that a changed model is not noticed: add checks.golden";

test("plan and run warn of a server that names no version of its model", async () => {
  await using job = await servedJob({ rest: { kind: "kserve" }, keys: { signature } });
  const planned = await runHere(["plan", job.spec]);
  expect(planned.stderr).toContain(warning);
  await expectEnd(job.run(), 0, warning);
});

test("plan does not warn of a server that names the version", async () => {
  await using job = await servedJob({});
  const planned = await runHere(["plan", job.spec]);
  expect([planned.code, planned.stderr]).toEqual([0, expect.not.stringContaining("names no version")]);
});
