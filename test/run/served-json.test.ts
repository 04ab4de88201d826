import { createHash, createHmac } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { reject } from "../support/rejects.js";
import { authorizationsByBotocore, signedHeaders, type SignedRequest, type SigningKeys } from "../support/botocore.js";
import { validators } from "../support/validators.js";
import type { RestOptions } from "../support/rest-server.js";
import { onRows, servedJob } from "../support/served-job.js";
import type { Misbehaviour } from "../support/v2-server.js";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest();

/** The header `authorization` that a request must have, computed as the documentation of AWS says. */
function authorizationOf(request: SignedRequest, scope: string, keys: SigningKeys): string {
  const { names, headers, time } = signedHeaders(request);
  const canonical = [
    "POST",
    request.path,
    "",
    ...names.map((name) => `${name}:${headers[name]}`),
    "",
    names.join(";"),
    sha256(request.body),
  ].join("\n");
  const inFull = `${time.slice(0, 8)}/${scope}/aws4_request`;
  const key = inFull.split("/").reduce<string | Buffer>(hmac, `AWS4${keys.AWS_SECRET_ACCESS_KEY}`);
  const signature = hmac(key, ["AWS4-HMAC-SHA256", time, inFull, sha256(canonical)].join("\n")).toString("hex");
  return `AWS4-HMAC-SHA256 Credential=${keys.AWS_ACCESS_KEY_ID}/${inFull}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
}

const small = { engine: { batch_size: 10 } };
const diabetes = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
const penguins = {
  inputs: {
    island: "string",
    sex: "string",
    year: "int64",
    bill_length_mm: "float32",
    bill_depth_mm: "float32",
    flipper_length_mm: "float32",
    body_mass_g: "float32",
  },
  outputs: { label: "string", probabilities: "float32[3]" },
};

const awsKeys = { AWS_ACCESS_KEY_ID: "AKID", AWS_SECRET_ACCESS_KEY: "s3cret-key", AWS_REGION: "eu-west-1" };
const sessionToken = "s3cret-session/token";

const scope = "eu-west-1/sagemaker";

/** Runs a job whose requests are signed, and whose server refuses the sixth. */
async function runRefused({
  withToken = false,
} = {}): Promise<{ readonly refused: CliResult; readonly signed: readonly SignedRequest[] }> {
  const seen: { text?: string } = {};
  await using job = await servedJob({
    rest: { kind: "json", seen },
    keys: { signature: diabetes, auth: "sigv4" },
    overrides: small,
  });
  const signed: SignedRequest[] = [];
  job.server.misbehave = ({ path, headers }) => {
    signed.push({ path, headers, body: seen.text ?? "" });
    const said = `The security token is invalid: ${String(headers["x-amz-security-token"])}`;
    return signed.length > 5 ? { status: 403, said } : undefined;
  };
  const env = { ...awsKeys, ...(withToken ? { AWS_SESSION_TOKEN: sessionToken } : {}) };
  const refused = await runHere(["run", job.spec, "--no-progress", "--log-level", "debug"], { env });
  return { refused, signed };
}

describe("a model whose server takes and answers JSON", () => {
  test.each<[string, string, object, RestOptions["answer"], string]>([
    ["instances", "diabetes-mlp", { signature: diabetes }, undefined, "instances"],
    [
      "a split data frame, objects by output",
      "penguins-pipeline",
      { signature: penguins, request: "dataframe_split" },
      undefined,
      "dataframe_split",
    ],
    [
      "a template, the whole answer",
      "penguins-pipeline",
      { signature: penguins, request: { dataframe_records: "{{records}}", params: { top: 3 } }, response: "." },
      (rows) => rows,
      "dataframe_records",
    ],
  ])("predictions are those of ONNX Runtime (%s)", async (_what, fixture, keys, answer, first) => {
    const seen: { body?: unknown } = {};
    await using job = await servedJob({ fixture, keys, rest: { kind: "json", seen, ...(answer && { answer }) } });

    await job.runWhole({ status: "complete", provider: "json" });
    expect(Object.keys(seen.body as object)[0]).toBe(first);
  });

  test("requests have the headers and the token, and neither the plan nor a message has them", async () => {
    await using job = await servedJob({
      rest: { kind: "json" },
      keys: { signature: diabetes, token: "s3cret-token", headers: { "X-Api-Key": "s3cret key" } },
    });
    const sent = new Set<string>();
    job.server.misbehave = ({ headers }) => {
      sent.add(`${headers.authorization} ${String(headers["x-api-key"])}`);
      const isPlanned = existsSync(join(job.out, "_infer-batch"));
      return isPlanned ? { status: 403, said: "no rights" } : undefined;
    };

    const refused = await expectEnd(job.run("--log-level", "debug"), 64);
    expect([...sent]).toEqual(["Bearer s3cret-token s3cret key"]);
    const names = await readdir(join(job.out, "_infer-batch"));
    const plans = names.map((name) =>
      readFile(join(job.out, "_infer-batch", name, "plan.json"), "utf8").catch(() => ""),
    );
    const plan = (await Promise.all(plans)).join("");
    expect(plan).toContain("json:/invocations");
    expect(`${refused.stderr}${refused.stdout}${plan}`).not.toContain("s3cret");
  });

  test("requests are signed as AWS documents it if auth is sigv4, and no message has the keys", async () => {
    const { refused, signed } = await runRefused();

    expect(refused, refused.stderr).toMatchObject({ code: 64 });
    expect(refused.stderr).toMatch(/403: The security token is invalid.*hint: requests are signed with the AWS/s);
    expect(signed.length).toBeGreaterThan(5);
    expect(signed.map(({ headers }) => headers.authorization)).toEqual(
      signed.map((request) => authorizationOf(request, scope, awsKeys)),
    );
    expect(`${refused.stderr}${refused.stdout}`).not.toContain("s3cret");
  });

  test("the token of a session that a server quotes as it refuses a signature is in no message", async () => {
    const { refused } = await runRefused({ withToken: true });

    expect(refused.stderr).toMatch(/403: The security token is invalid: \*\*\*/);
    expect(`${refused.stderr}${refused.stdout}`).not.toContain("s3cret");
  });

  test.skipIf(validators.missing !== undefined)(
    `requests are signed as botocore does${validators.skipped}`,
    async () => {
      const { signed } = await runRefused();

      expect(signed.map(({ headers }) => headers.authorization)).toEqual(
        authorizationsByBotocore(signed, scope, awsKeys),
      );
    },
  );

  test("a run without AWS credentials ends with 64 if auth is sigv4, and one without a region names the spec's key", async () => {
    await using job = await servedJob({ rest: { kind: "json" }, keys: { signature: diabetes, auth: "sigv4" } });
    const nobody = {
      ...awsKeys,
      AWS_ACCESS_KEY_ID: undefined,
      AWS_EC2_METADATA_DISABLED: "true",
      HOME: "/nonexistent",
    };

    const [noKeys, noRegion] = [
      await runHere(["run", job.spec, "--no-progress"], { env: nobody }),
      await runHere(["run", job.spec, "--no-progress"], { env: { ...awsKeys, AWS_REGION: undefined } }),
    ];

    expect([noKeys.code, noRegion.code], `${noKeys.stderr}${noRegion.stderr}`).toEqual([64, 64]);
    expect(noKeys.stderr).toContain("looking for AWS credentials: there are none");
    expect(noRegion.stderr).toMatch(/model\.server\.auth: the region of 127.* is not known.*set AWS_REGION/s);
  });

  test("a server that throttles as SageMaker does (400) is asked again: no row is bad, every row once", async () => {
    await using job = await servedJob({
      rest: { kind: "json" },
      keys: { signature: diabetes },
      overrides: { ...small, ...reject },
    });
    let faults = 0;
    job.server.misbehave = onRows(() => {
      faults += 1;
      return faults <= 3 ? { status: 400, headers: { "x-amzn-errortype": "ThrottlingException" } } : undefined;
    });

    const ended = await job.runWhole({ rows_rejected: 0 });
    expect((ended.report["server"] as { retries: number }).retries).toBe(3);
  });

  test.each<[string, number, RegExp, Misbehaviour]>([
    ["no longer has the path", 64, /404: gone.*hint: check the URL/s, { status: 404, said: "gone" }],
    ["answers without predictions", 64, /it has no `predictions`/, { text: '{"scores":[1]}' }],
    [
      "answers with a text in place of a number",
      65,
      /the answer has "high" in place of a float32/,
      { text: '{"predictions":["high"]}' },
    ],
    [
      "wraps a refusal as SageMaker does (424)",
      65,
      /unknown category/,
      {
        status: 424,
        body: { OriginalStatusCode: 400, OriginalMessage: "unknown category", ErrorCode: "CLIENT_ERROR" },
      },
    ],
  ])("a server that %s ends the run with %i", async (_what, code, said, fault) => {
    await using job = await servedJob({
      rest: { kind: "json" },
      keys: { signature: diabetes },
      overrides: { engine: { batch_size: 1 }, retry: { max_seconds: 2 } },
    });
    job.server.misbehave = onRows(() => fault);

    await expectEnd(job.run(), code, said);
  });
});
