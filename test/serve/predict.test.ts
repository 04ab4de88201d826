import { expect, test } from "vitest";
import { serveSchema as serveSpec } from "#src/job/jobfile/serve-spec.js";
import { deadlineIn } from "#src/serve/deadline.js";
import { createServeMetrics } from "#src/serve/metrics.js";
import { predict } from "#src/serve/predict.js";
import { columnOfValues } from "#src/serve/served-columns.js";
import type { LoadedModel, ServedRun } from "#src/serve/served-run.js";

const spec = serveSpec.parse({ key: ["id"], canary: "100%" });
const plan = { runId: "small-0123456789ab", model: { sha256: "ab" }, contract: { passthrough: [] } };
const canary = {
  plan,
  scorer: { columns: [] },
  batcher: { score: () => Promise.reject(new Error("the device is gone")) },
} as unknown as LoadedModel;
const found = { members: '"id":1,"score":0.5', runId: plan.runId, model: "ab" };

async function ask(lookUp: () => Promise<unknown>): Promise<{ readonly text: string; readonly warnings: string[] }> {
  const rowsByKey = { columns: [{ name: "id", type: "int64", path: ["id"] }], lookUp, waiting: 0 };
  const warnings: string[] = [];
  const log = { warn: (message: string) => void warnings.push(message), info: () => undefined, debug: () => undefined };
  const metrics = createServeMetrics("small");
  const run = { plan, rowsByKey, canary } as unknown as ServedRun;
  const text = await predict(
    run,
    { rows: [{ id: 1 }] },
    { spec, metrics, log, deadline: deadlineIn(undefined, () => 0) },
  ).catch((error: unknown) => String(error));
  return { text, warnings };
}

test("a challenger that fails leaves its keys to the model of the run", async () => {
  const { text, warnings } = await ask(() => Promise.resolve([found]));
  expect(JSON.parse(text)).toMatchObject({ predictions: [{ id: 1, score: 0.5, source: "batch" }] });
  expect(warnings).toEqual([expect.stringMatching(/challenger.*the device is gone/)]);
});

test("why the output cannot be read is logged, and not answered", async () => {
  const { text, warnings } = await ask(() => Promise.reject(new Error("no pg_hba.conf entry for host 10.0.0.7")));
  expect(text).toMatch(/the output cannot be read/);
  expect(text).not.toContain("10.0.0.7");
  expect(warnings).toEqual([expect.stringContaining("10.0.0.7")]);
});

test("a moment that a timestamp[ns] cannot have is refused", () => {
  const column = { name: "until", type: "timestamp[ns]" } as const;
  expect(columnOfValues(column, ["2262-04-11 23:47:16"])).toMatchObject({
    data: BigInt64Array.of(9223372036000000000n),
  });
  expect(() => columnOfValues(column, ["9999-12-31"])).toThrow(/9999-12-31.*expected a timestamp/);
});
