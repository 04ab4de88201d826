import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { createServer as createHttpServer, request as sendHttp } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { createServer } from "node:tls";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { reject } from "../support/rejects.js";
import { servedJob } from "../support/served-job.js";
import { until } from "../support/waiting.js";

const small = { engine: { batch_size: 5 }, commit_rows: 50 };

interface ServerReport {
  readonly requests: number;
  readonly urls: readonly { readonly url: string; readonly requests: number; readonly failures: number }[];
}

describe("a model that several servers have", () => {
  test("requests go to all servers, and the report has figures for each", async () => {
    await using job = await servedJob({ copies: 2, overrides: small });
    for (const server of [job.server, ...job.others]) {
      server.misbehave = () => ({ delayMs: 2 });
    }

    const ended = await job.runWhole();
    const { requests, urls } = ended.report["server"] as ServerReport;
    expect(urls.map(({ url, failures }) => [url, failures])).toEqual([
      [job.server.url, 0],
      [job.others[0]?.url, 0],
    ]);
    expect(urls.reduce((sum, one) => sum + one.requests, 0)).toBe(requests);
    expect(Math.min(...urls.map((one) => one.requests))).toBeGreaterThan(10);
  });

  test("a server that is unavailable from the start is left out: every row once", async () => {
    await using job = await servedJob({ copies: 2, overrides: small });
    await job.server[Symbol.asyncDispose]();

    await expectEnd(job.runWhole(), 0, /ECONNREFUSED.*it is left out for now/);
  });

  test("a server that goes away during the run gets few requests, no row is rejected, every row once", async () => {
    await using job = await servedJob({ copies: 2, overrides: { ...small, ...reject } });
    job.server.misbehave = ({ number }) => (number > 15 ? { reset: "before" } : { delayMs: 2 });
    let away = 0;
    for (const server of job.others) {
      server.misbehave = () => ({ delayMs: 5 });
    }

    const ended = await job.runWhole({ rows_rejected: 0 });
    expect(ended.stderr).toContain(`${job.server.url} is left out for now: ECONNRESET`);
    away = (ended.report["server"] as ServerReport).urls[0]?.failures ?? 0;
    expect(away).toBeGreaterThanOrEqual(5);
    expect(away).toBeLessThan(30);
  });

  test("servers that are all away end the attempt with 75; the same command continues when one is back", async () => {
    await using job = await servedJob({ copies: 2, overrides: { ...small, ...reject, retry: { max_seconds: 1 } } });
    const servers = [job.server, ...job.others];
    for (const server of servers) {
      server.misbehave = ({ number }) => (number > 15 ? { reset: "before" } : undefined);
    }

    await expectEnd(job.run(), 75, /scoring with m on http:\S+, http:\S+: ECONNRESET \(tried \d+ times in \d+ s\)/);
    job.server.misbehave = undefined;
    await job.rewrite({ retry: { max_seconds: 60 } }); // a second may pass here before the one that answers is asked
    await job.runWhole({ rows_rejected: 0 });
  });

  test("a server that fails on everything (500) does not make good rows bad, since another one answers", async () => {
    await using job = await servedJob({ copies: 2, overrides: { ...small, ...reject } });
    job.server.misbehave = ({ number }) => (number > 8 ? { status: 500, said: "CUDA error" } : undefined);

    await job.runWhole({ rows_rejected: 0 });
  });

  test("servers with different versions are refused before anything is scored", async () => {
    await using job = await servedJob({ copies: 2 });
    job.server.versions = ["8"];
    await expectEnd(job.run(), 64, /it has version 1, and http:\S+ has version 8/);
  });
});

async function textsIn(folder: string): Promise<string> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return (await Promise.all(files.map((entry) => readFile(join(entry.parentPath, entry.name), "latin1")))).join("\n");
}

describe("a secret in the URL of a model server", () => {
  const [inPath, inQuery] = ["s3cret-of-path", "s3cret-of-query"];

  /** A gateway that takes the secrets of URLs, and says the URL of what it refuses. */
  async function gateTo(
    server: () => string,
    prefix: string,
  ): Promise<AsyncDisposable & { readonly url: string; readonly events: string[] }> {
    const events: string[] = [];
    const gate = createHttpServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? "", "http://gate");
      if (pathname === "/api/v1/lineage") {
        request.on("data", (bytes: Buffer) => events.push(bytes.toString("utf8"))).on("end", () => response.end());
        return;
      }
      if (!pathname.startsWith(prefix) || searchParams.get("code") !== inQuery) {
        response.writeHead(404).end(`cannot ${request.method} ${request.url}`);
        return;
      }
      const { method, headers } = request;
      const onward = sendHttp(`${server()}${pathname.slice(prefix.length)}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 0, answer.headers);
        answer.pipe(response);
      });
      onward.on("error", () => response.destroy());
      request.pipe(onward);
    });
    await new Promise<void>((done) => {
      gate.listen(0, "127.0.0.1", done);
    });
    return {
      url: `http://127.0.0.1:${(gate.address() as AddressInfo).port}`,
      events,
      async [Symbol.asyncDispose]() {
        gate.closeAllConnections();
        await new Promise((done) => {
          gate.close(done);
        });
      },
    };
  }

  test.each([
    ["v2", { protocol: "v2", name: "m" }, {}],
    [
      "json",
      {
        protocol: "json",
        path: "/invocations",
        signature: { inputs: { features: "float32[10]" }, outputs: { score: "float32" } },
      },
      { rest: { kind: "json" } },
    ],
    [
      "json with a query in its path",
      { protocol: "json", path: `/invocations?code=${inQuery}` },
      { rest: { kind: "json" } },
    ],
  ] as const)("is in no message, report or file: %s", async (_what, place, options) => {
    await using job = await servedJob({ ...options, overrides: small });
    await using gate = await gateTo(() => job.server.url, `/v1/${inPath}`);
    const signature = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
    const query = "path" in place && place.path.includes("?") ? "" : `?code=${inQuery}`;
    const server = (prefix: string): object => ({
      ...place,
      ...("path" in place ? { signature } : {}),
      url: `${gate.url}/v1/${prefix}${query}`,
    });
    const report = { html: "reports/page.html", metrics: "reports/metrics.prom", openlineage: { url: gate.url } };
    await job.rewrite({ ...small, report, model: { server: server(inPath) } });

    const planned = await runHere(["plan", job.spec]);
    const doctored = await runHere(["doctor", job.spec]);
    const ended = await job.run();
    const status = await runHere(["status", job.spec]);
    await job.rewrite({ ...small, retry: { max_seconds: 1 }, model: { server: server(`${inPath}/gone`) } });
    const refused = await job.run("--new-run");

    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    expect(refused.code, refused.stderr).toBe(64);
    const texts = [planned, doctored, ended, status, refused]
      .map(({ stdout, stderr }) => `${stdout}${stderr}`)
      .join("\n");
    expect(texts).toContain(`${gate.url}/v1/***`);
    expect(gate.events.length).toBeGreaterThan(0);
    const files = await Promise.all([job.out, join(dirname(job.out), "reports")].map(textsIn));
    expect([texts, ...gate.events, ...files].join("\n")).not.toMatch(/s3cret/);
  });
});

describe("a server that says the secret of its URL in a refusal", () => {
  test.each<[what: string, query: string, path: string, said: readonly string[]]>([
    ["as it is", "key=s3cretvalue", "/invocations", ["s3cretvalue"]],
    ["of a path", "", "/invocations?code=s3cretvalue", ["s3cretvalue", "/invocations?code=s3cretvalue"]],
    ["decoded", "a=1&sig=ab%2Fs3cret%2B", "/invocations?code=s3cret%20of+path", ["ab/s3cret+", "s3cret of path"]],
    ["encoded", "sig=ab/s3cret==", "/invocations", ["ab%2Fs3cret%3D%3D", "ab%2fs3cret%3d%3d"]],
    ["with a malformed escape", "sig=s3cret%", "/invocations", ["s3cret%"]],
    ["without a name", "s3cretvalue", "/invocations", ["s3cretvalue"]],
  ])("is in no log, report or file: %s", async (_what, query, path, said) => {
    const signature = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
    const few = { input: { where: "id < 60" }, engine: { batch_size: 1 } };
    await using job = await servedJob({ rest: { kind: "json" }, overrides: { ...few, ...reject } });
    const server = { protocol: "json", path, signature, url: `${job.server.url}/?${query}` };
    await job.rewrite({ model: { server } });
    let refusals = 0;
    job.server.misbehave = ({ number }) => {
      refusals += 1;
      return number > 10 && refusals < 20
        ? { status: 400, said: `API key ${said.join(" or ")} is not valid` }
        : undefined;
    };

    const ended = await job.run();
    await job.rewrite({ on_bad_row: "fail", model: { server } });
    refusals = 0;
    const refused = await job.run("--new-run");

    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    expect(refused, refused.stderr).toMatchObject({ code: 65 });
    const files = await textsIn(job.out);
    expect(files).toContain("API key *** ");
    expect(refused.stderr).toContain("API key *** ");
    expect([ended.stdout, ended.stderr, refused.stdout, refused.stderr, files].join("\n")).not.toMatch(/s3cret/);
  });
});

test("the query of a server's URL is sent as it is, with all its question marks", async () => {
  const signature = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
  await using job = await servedJob({ rest: { kind: "json" }, overrides: small });
  const url = `${job.server.url}/?sig=a?b==`;
  await job.rewrite({ model: { server: { protocol: "json", path: "/invocations", signature, url } } });

  await expectEnd(job.run(), 0);
  expect([...new Set(job.server.paths)]).toEqual(["POST /invocations?sig=a?b=="]);
});

const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

describe.skipIf(!hasOpenssl)("a server that speaks TLS", () => {
  test("a server with an authority of its own that asks for a certificate is used with model.server.tls", async () => {
    const [key, cert] = [join(scratch.path, "key.pem"), join(scratch.path, "cert.pem")];
    const subject = ["-subj", "/CN=infer-batch test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"];
    const files = ["-keyout", key, "-out", cert];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...subject, ...files], { stdio: "pipe" });
    await using job = await servedJob();
    const pem = { key: readFileSync(key), cert: readFileSync(cert) };
    const gate = createServer({ ...pem, ca: pem.cert, requestCert: true, rejectUnauthorized: true }, (client) => {
      const onward = connect(Number(new URL(job.server.url).port), "127.0.0.1");
      client.pipe(onward).pipe(client);
      client.on("error", () => onward.destroy());
      onward.on("error", () => client.destroy());
    });
    gate.on("tlsClientError", () => undefined);
    await new Promise<void>((done) => {
      gate.listen(0, "127.0.0.1", done);
    });
    const url = `https://127.0.0.1:${(gate.address() as AddressInfo).port}`;
    const runWith = async (tls: object | undefined): Promise<Awaited<ReturnType<typeof job.run>>> => {
      await job.rewrite({ retry: { max_seconds: 1 }, model: { server: { protocol: "v2", url, name: "m", tls } } });
      return await job.run();
    };

    const [untrusted, unknown, broken, trusted] = [
      await runWith(undefined),
      await runWith({ ca: cert }),
      await runWith({ ca: cert, cert, key: cert }),
      await runWith({ ca: cert, cert, key }),
    ];
    gate.close();

    expect(untrusted, untrusted.stderr).toMatchObject({ code: 64 });
    expect(untrusted.stderr).toContain("the server's certificate is not trusted");
    expect(unknown.code, unknown.stderr).toBeGreaterThan(0);
    expect(broken, broken.stderr).toMatchObject({ code: 64 });
    expect(broken.stderr).toContain("model.server.tls");
    expect(trusted, trusted.stderr).toMatchObject({ code: 0 });
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
  });
});

const columns = (outputs: Readonly<Record<string, unknown>>): unknown => ({ outputs });
const diabetes = { inputs: { features: "float32[10]" }, outputs: { score: "float32[1]" } };

describe("a model of TensorFlow Serving or KServe's V1 protocol", () => {
  test.each(["diabetes-mlp", "penguins-pipeline"])(
    "a model of TensorFlow Serving gives the predictions of ONNX Runtime (%s, instances)",
    async (fixture) => {
      const seen: { body?: unknown } = {};
      await using job = await servedJob({ fixture, rest: { kind: "tensorflow", versions: ["9", "10"], seen } });

      await job.runWhole({ status: "complete", provider: "v1" });
      expect(Object.keys(seen.body as object)).toEqual(["instances"]);
      expect([...new Set(job.server.paths.filter((path) => path.endsWith("predict")))]).toEqual([
        "POST /v1/models/m/versions/10:predict",
      ]);
    },
  );

  test("a model of TensorFlow Serving gives the predictions of ONNX Runtime (inputs, version in the spec)", async () => {
    await using job = await servedJob({
      fixture: "penguins-pipeline",
      rest: { kind: "tensorflow", versions: ["9", "10"], answer: (_rows, byOutput) => columns(byOutput) },
      keys: { request: "inputs", version: "9" },
    });

    await job.runWhole();
    expect(job.server.paths).toContain("POST /v1/models/m/versions/9:predict");
  });

  test("a model of KServe is bound by the signature in the spec", async () => {
    await using job = await servedJob({ rest: { kind: "kserve" }, keys: { signature: diabetes } });

    await job.runWhole();
    expect(job.server.paths).toContain("POST /v1/models/m:predict");
  });

  test("a model without metadata and signature is refused with an example of a signature", async () => {
    await using job = await servedJob({ rest: { kind: "kserve" } });
    await expectEnd(
      runHere(["validate", job.spec]),
      64,
      "the server has no metadata of the model",
      'features: "float32[10]"',
    );
  });

  test("a run waits for a model that is loading", async () => {
    await using job = await servedJob({ rest: { kind: "tensorflow" } });
    job.server.isReady = false;
    const running = job.run();
    await until(() => job.server.paths.length > 1);
    job.server.isReady = true;

    await expectEnd(running, 0, "the model is not ready");
  });
});
