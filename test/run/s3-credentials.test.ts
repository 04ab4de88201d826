import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { createServer } from "node:tls";
import { expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { type CredentialsService, credentialsService } from "../support/credentials-service.js";
import { identity, smallJob } from "../support/faulty.js";
import { httpProxy } from "../support/http-proxy.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { runInS3, upload } from "../support/s3-job.js";
import { s3OutputJob } from "../support/s3-output.js";
import { useS3 } from "../support/s3.js";

const s3 = useS3();

const envOf = (service: CredentialsService): Readonly<Record<string, string | undefined>> => ({
  AWS_ACCESS_KEY_ID: undefined,
  AWS_SECRET_ACCESS_KEY: undefined,
  AWS_CONTAINER_CREDENTIALS_FULL_URI: `${service.url}/creds`,
});

s3.describe("a run with temporary credentials", () => {
  test("a run goes on when its credentials expire while their service is unavailable for some seconds", async () => {
    await using service = await credentialsService();
    await using proxy = await httpProxy(s3.server().port);
    const bucket = await s3.server().createBucket();
    const job = await s3OutputJob(scratch.path, { bucket, port: proxy.port }, { retry: { max_seconds: 60 } });
    service.holdMs = 1000;
    // The first part is not sent before the credentials have expired.
    let expired: Promise<unknown> | undefined;
    proxy.twist = (request) => {
      if (!/^PUT .*part-0000[0-9]/.test(request)) {
        return undefined;
      }
      if (expired === undefined) {
        service.fault = { status: 503 };
        expired = new Promise((done) => setTimeout(done, 1500));
        setTimeout(() => {
          service.fault = undefined;
          service.holdMs = 3_600_000;
        }, 5000);
      }
      return { kind: "hold", until: expired };
    };

    await expectEnd(
      runCli(["run", job.spec, "--json"], { env: envOf(service) }),
      0,
      /no credentials: the credentials service at .* answers 503; trying again/,
    );
    await job.expectDone();
  });

  test("a run whose credentials service hangs ends in 75, soon after retry.max_seconds", async () => {
    await using service = await credentialsService();
    const bucket = await s3.server().createBucket();
    const job = await s3OutputJob(scratch.path, { bucket, port: s3.server().port });
    await job.rewrite(s3.server().port, {
      output: { timeouts: { connect: 1, silence: 2, request: 300 } },
      retry: { max_seconds: 2 },
    });
    service.fault = "hang";

    const startedMs = performance.now();
    const result = await expectEnd(
      runCli(["run", job.spec], { env: envOf(service) }),
      75,
      /no credentials: none came within 1\.5 s/,
    );
    expect(result.stderr, "what the SDK says").not.toContain("smithy");
    expect(performance.now() - startedMs).toBeLessThan(60_000); // of which the SDK takes 236 s
  });
});

const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

interface Gate extends AsyncDisposable {
  readonly endpoint: string;
  /** Path of the authority's certificate. */
  readonly certificate: string;
  readonly handshakes: () => number;
}

/** A gate to the store that speaks TLS, with a certificate of its own making. */
async function tlsGate(folder: string): Promise<Gate> {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const subject = ["-subj", "/CN=infer-batch test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"];
  const files = ["-keyout", key, "-out", cert];
  execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...subject, ...files], { stdio: "pipe" });
  let handshakes = 0;
  const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (client) => {
    handshakes += 1;
    const onward = connect(s3.server().port, "127.0.0.1");
    client.pipe(onward).pipe(client);
    client.on("error", () => onward.destroy());
    onward.on("error", () => client.destroy());
  });
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  return {
    endpoint: `https://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`,
    certificate: cert,
    handshakes: () => handshakes,
    async [Symbol.asyncDispose]() {
      await new Promise((done) => server.close(done));
    },
  };
}

s3.describe("a store that speaks TLS", () => {
  test.skipIf(!hasOpenssl)(
    "a store that speaks TLS is read when its certificate is trusted, and refused when it is not",
    async () => {
      await using gate = await tlsGate(scratch.path);
      const bucket = await s3.server().createBucket();
      const select = "SELECT i::BIGINT AS id, (i / 8)::FLOAT AS x FROM range(400000) t(i)";
      const job = await smallJob(scratch.path, { model: identity, select });
      await upload(bucket, join(scratch.path, "in"), "in/");
      await job.rewrite({ input: { path: `s3://${bucket.name}/in/*.parquet`, endpoint: gate.endpoint } });
      const { port } = s3.server();

      const distrusted = await runInS3(["run", job.spec], { port });
      const env = { NODE_EXTRA_CA_CERTS: gate.certificate }; // Node reads it when it starts
      const trusted = await runInS3(["run", job.spec], { port, env, ownProcess: true });

      expect(distrusted.code, distrusted.stderr).toBe(64);
      expect(distrusted.stderr).toContain("the store's certificate is not trusted");
      expect(trusted, trusted.stderr).toMatchObject({ code: 0 });
      expect(await outputRows(job.out)).toHaveLength(400_000);
      expect(gate.handshakes()).toBeGreaterThan(2);
    },
  );
});
