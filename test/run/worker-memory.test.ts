import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { partNames } from "../support/output.js";
import { writeRows } from "../support/parquet.js";

/** Given to node with --import: each thread gets a heap that a few thousand texts fit into. */
const smallHeaps = `
  import threads from "node:worker_threads";
  import { syncBuiltinESMExports } from "node:module";
  const { Worker } = threads;
  threads.Worker = class extends Worker {
    constructor(file, options) {
      super(file, { ...options, resourceLimits: { maxOldGenerationSizeMb: 24, maxYoungGenerationSizeMb: 4 } });
    }
  };
  syncBuiltinESMExports();`;

test("a scoring worker that reaches its memory limit ends the run with 75, and tells what to do", async () => {
  const model = join(scratch.path, "echo.onnx");
  await writeModel(model, {
    inputs: [{ name: "text", dtype: "string", shape: ["N"] }],
    outputs: [{ name: "echo", dtype: "string", shape: ["N"] }],
    nodes: [{ op: "Identity", from: ["text"], to: "echo" }],
  });
  const rows =
    "select range::bigint as id, md5(range::varchar) || repeat(md5(range::varchar), 20) as text from range(60000)";
  await writeRows(join(scratch.path, "texts.parquet"), rows);
  const fixture = { name: "texts", table: "", model: "", outputs: { echo: "echo" }, rows: 60_000 };
  const overrides = {
    input: { path: join(scratch.path, "texts.parquet") },
    model: { path: model },
    engine: { batch_size: 60_000, memory: "4GiB" }, // so that all texts are in one batch
    commit_rows: 60_000,
  };
  const spec = await writeSpec(scratch.path, fixture, overrides);
  const node = [`--import=data:text/javascript,${encodeURIComponent(smallHeaps)}`];

  const ended = await expectEnd(
    runCli(["run", spec, "--no-progress"], { node }),
    75,
    /^error: .*echo\.onnx: a worker thread reached its memory limit\n {2}hint: .*NODE_OPTIONS/m,
  );
  expect(ended.stderr).not.toContain("\n    at ");
  expect(await partNames(join(scratch.path, "out"))).toEqual([]);
  await expectEnd(runCli(["run", spec, "--no-progress"]), 0);
});
