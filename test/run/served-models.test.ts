import { writeFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { partNames } from "../support/output.js";
import { servedJob } from "../support/served-job.js";
import { until } from "../support/waiting.js";

describe("a model that a server has", () => {
  test.each([
    ["diabetes-mlp", true],
    ["diabetes-mlp", false],
    ["cancer-logistic", true],
    ["cancer-logistic", false],
    ["penguins-pipeline", true],
    ["penguins-pipeline", false],
  ])("a served model gives the predictions of ONNX Runtime (%s, binary tensors: %s)", async (fixture, isBinary) => {
    await using job = await servedJob({ fixture, isBinary });
    const types = new Set<unknown>();
    job.server.misbehave = ({ headers }) => void types.add(headers["content-type"]);

    await job.runWhole({ status: "complete", provider: "v2" });
    expect([...types]).toEqual([isBinary ? "application/octet-stream" : "application/json"]);
  });

  test("a run reports its requests to the server and their response times", async () => {
    await using job = await servedJob();
    job.server.misbehave = ({ number }) => (number === 6 ? { status: 503 } : undefined);

    const { report } = await job.run();

    const { requests, retries, latency_ms: latency } = report["server"] as Record<string, number | object>;
    expect(retries).toBe(1);
    expect(requests).toBe(job.server.paths.filter((path) => path.endsWith("/infer")).length);
    expect(latency).toEqual({ p50: expect.any(Number), p95: expect.any(Number), p99: expect.any(Number) });
    const manifest = JSON.parse(await readFile(join(job.out, "_manifest.json"), "utf8")) as Record<string, unknown>;
    expect(JSON.stringify(manifest)).toContain('"server":{"requests":');
  });

  test("requests ask for the version that the run was planned with, the latest of those that the server names", async () => {
    await using job = await servedJob({ versions: ["9", "10"] });
    await expectEnd(job.run(), 0);
    const asked = new Set(job.server.paths.filter((path) => path.endsWith("/infer")));
    expect([...asked]).toEqual(["POST /v2/models/m/versions/10/infer"]);
    const manifest = JSON.parse(await readFile(join(job.out, "_manifest.json"), "utf8")) as { model: unknown };
    expect(manifest.model).toMatchObject({ uri: "v2:m", version: "10" });
  });

  test("requests ask for the version in model.server.version", async () => {
    await using job = await servedJob({ versions: ["10", "9"], keys: { version: "9" } });
    await expectEnd(job.run(), 0);
    expect(job.server.paths).toContain("POST /v2/models/m/versions/9/infer");
  });

  test("a server with a limit of rows gets no request with more", async () => {
    await using job = await servedJob({ maxBatchSize: 5 });
    let most = 0;
    job.server.misbehave = ({ rows }) => void (most = Math.max(most, rows));

    const ended = await expectEnd(job.run(), 0);
    expect(ended.stderr).not.toContain("WARN");
    expect(most).toBe(5);
  });

  test("requests have the token, and neither the plan nor a message has it", async () => {
    await using job = await servedJob({ keys: { token: "s3cret-token" } });
    const tokens = new Set<unknown>();
    job.server.misbehave = ({ headers, number }) => {
      tokens.add(headers.authorization);
      return number >= 4 ? { status: 403, said: "no rights" } : undefined;
    };

    const refused = await expectEnd(job.run("--log-level", "debug"), 64, /the server answered 403: no rights/);
    expect([...tokens]).toEqual(["Bearer s3cret-token"]);
    const names = await readdir(join(job.out, "_infer-batch"));
    const runId = names.find((name) => name !== "run.json") ?? "";
    const plan = await readFile(join(job.out, "_infer-batch", runId, "plan.json"), "utf8");
    expect(`${refused.stderr}${refused.stdout}${plan}`).not.toContain("s3cret");
  });

  test("a token in a file is rotated during a run", async () => {
    const engine = { batch_size: 10 };
    await using job = await servedJob({ keys: { token: "${file:token}", concurrency: 1 }, overrides: { engine } });
    const file = join(dirname(job.spec), "token");
    let token = "first";
    writeFileSync(file, token);
    const sent = new Set<unknown>();
    job.server.misbehave = ({ headers, number }) => {
      sent.add(headers.authorization);
      if (headers.authorization !== `Bearer ${token}`) {
        return { status: 401 };
      }
      if (number !== 5) {
        return undefined;
      }
      token = "second";
      writeFileSync(file, `${token}\n`);
      return { delayMs: 1100 }; // the file is read at most once a second
    };

    await job.runWhole();
    expect([...sent]).toEqual(["Bearer first", "Bearer second"]);
  });

  test("requests go below the path of the URL", async () => {
    await using job = await servedJob();
    await job.rewrite({ model: { server: { protocol: "v2", url: `${job.server.url}/base/`, name: "m" } } });
    await expectEnd(job.run(), 0);
  });

  test("a run waits for a server that is not ready", async () => {
    await using job = await servedJob();
    job.server.isReady = false;
    const running = job.run();
    await until(() => job.server.paths.filter((path) => path.endsWith("/ready")).length > 1);
    job.server.isReady = true;

    await expectEnd(running, 0, "it is not ready");
  });

  test("plan and validate ask the server for the model and score nothing but blank rows", async () => {
    await using job = await servedJob();
    const [planned, valid] = [await runHere(["plan", job.spec]), await runHere(["validate", job.spec])];
    expect([planned.code, valid.code], `${planned.stderr}${valid.stderr}`).toEqual([0, 0]);
    expect(planned.stdout).toContain("v2:m");
  });

  test("a process that is killed among requests is continued by the next one, every row once", async () => {
    await using job = await servedJob({ overrides: { commit_rows: 20, engine: { batch_size: 5 } } });
    const golden = await goldenRows(job.fixture);
    for (const spans of [3, 9, 15]) {
      job.server.misbehave = () => ({ delayMs: 3 });
      const killed = await runCli(["run", job.spec, "--no-progress"], {
        onStart: (child) => {
          void until(async () => (await partNames(job.out).catch(() => [])).length >= spans).then(() =>
            child.kill("SIGKILL"),
          );
        },
      });
      expect(killed, killed.stderr).toMatchObject({ signal: "SIGKILL" });
    }
    job.server.misbehave = undefined;
    const ended = await expectEnd(job.run(), 0);
    expect(Number(ended.report["spans_resumed"])).toBeGreaterThan(14);
    await expectFinished(job.out, { golden });
  });
});

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
