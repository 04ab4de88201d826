import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { startServing } from "../support/serve.js";

test("the challenger answers the same share of keys each time, and is compared with the model of the run", async () => {
  await writeModel(join(scratch.path, "challenger.onnx"), {
    ...identity,
    nodes: [{ op: "Add", from: ["x", "two"], to: "score" }],
    constants: [{ name: "two", values: [2] }],
  });
  const { spec } = await smallJob(scratch.path, {
    model: identity,
    select: "SELECT i::BIGINT AS id, i::DOUBLE AS x FROM range(200) t(i)",
    output: { columns: ["id"] },
    challenger: { path: "challenger.onnx" },
    serve: { port: 0, key: ["id"], canary: "20%" },
  });
  await expectEnd(runHere(["run", spec]), 0);
  const server = await startServing(spec);
  const rows = Array.from({ length: 400 }, (_, id) => ({ id, x: id }));
  const served = await server.predict(rows);
  const isCanary = served.map(({ source }) => source === "canary");
  for (const [id, { score, source }] of served.entries()) {
    expect([source, score]).toEqual(isCanary[id] === true ? ["canary", id + 2] : [id < 200 ? "batch" : "online", id]);
  }
  const share = isCanary.filter(Boolean).length / rows.length;
  expect(share).toBeGreaterThan(0.1);
  expect(share).toBeLessThan(0.3);
  expect((await server.predict(rows)).map(({ source }) => source === "canary")).toEqual(isCanary);
  const spelled = await server.predict(rows.map(({ id, x }) => ({ id: String(id), x })));
  expect(spelled.map(({ source }) => source === "canary")).toEqual(isCanary);
  const canary = isCanary.indexOf(true);
  expect(await server.predict([{ id: canary }])).toMatchObject([{ score: canary, source: "batch" }]); // it has no x
  const text = await (await server.get("/metrics")).text();
  const count = isCanary.filter(Boolean).length * 3;
  expect(text).toContain(`canary_difference_sum{batch_job="small",column="score"} ${count * 2}\n`);
  expect(text).toContain(`canary_difference_count{batch_job="small",column="score"} ${count}\n`);
  expect(text).not.toContain('column="id"');
});
