import { expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { type CredentialsService, credentialsService } from "../support/credentials-service.js";
import { httpProxy } from "../support/http-proxy.js";
import { scratch } from "../support/job.js";
import { useS3 } from "../support/s3.js";
import { s3OutputJob } from "../support/s3-output.js";

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
