import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";
import { pythonTools, pythonToolsOfTorture } from "../support/python-tools.js";
import { startServing } from "../support/serve.js";

const script = fileURLToPath(new URL("../support/v2_clients.py", import.meta.url));
const triton = pythonTools("tritonclient", ["tritonclient[http]==2.62.0"]);
const kserve = pythonToolsOfTorture("kserve", ["kserve==0.21.0", "onnxruntime==1.32.0"]);
const scores = [0.5, -3, 1e9];

test.each([
  ["Triton", "triton", triton, 4],
  ["KServe", "kserve", kserve, 2],
] as const)("the client of %s gets predictions, in bytes and in JSON", async (_name, client, tools, answers) => {
  if (tools.missing !== undefined) {
    console.warn(`SKIPPED${tools.skipped}`);
    return;
  }
  const spec = await eighthsJob(10);
  await expectEnd(runHere(["run", spec]), 0);
  const server = await startServing(spec);
  const { stdout, stderr } = spawnSync(join(tools.bin, "python"), [script, client, server.url], { encoding: "utf8" });
  expect(stderr === "" || stdout !== "", stderr).toBe(true);
  const said = JSON.parse(stdout) as { scores: unknown; refused?: string };
  expect(said.scores).toEqual(Array.from({ length: answers }, () => scores));
  expect(said.refused ?? "no input x").toContain("no input x");
});
