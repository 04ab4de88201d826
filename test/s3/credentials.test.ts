import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { ObjectStore } from "#src/stores/objects/store.js";
import { type CredentialsService, credentialsService, stsError } from "../support/credentials-service.js";
import { httpProxy, s3Error } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { useS3 } from "../support/s3.js";
import { credentials } from "../support/s3-server.mjs";
import { type S3SourceSetup, storeAt } from "../support/s3-source.js";
import { until } from "../support/waiting.js";
import { classifyS3 } from "#src/stores/objects/s3.js";

const s3 = useS3();

const unprefixed =
  "ACCESS_KEY_ID SECRET_ACCESS_KEY CONTAINER_CREDENTIALS_FULL_URI CONTAINER_AUTHORIZATION_TOKEN_FILE EC2_METADATA_DISABLED EC2_METADATA_SERVICE_ENDPOINT ENDPOINT_URL_STS WEB_IDENTITY_TOKEN_FILE ROLE_ARN PROFILE REGION";
const names = unprefixed.split(" ").map((name) => `AWS_${name}`);

afterEach(() => {
  for (const name of names) {
    delete process.env[name];
  }
});

/** Opens a store whose credentials come only from what `env` names. */
function storeWith(env: Readonly<Record<string, string>>, setup: Partial<S3SourceSetup> = {}): ObjectStore {
  const store = storeAt({ port: s3.server().port, ...setup });
  for (const name of names) {
    delete process.env[name]; // before the first request looks for it
  }
  Object.assign(process.env, { AWS_EC2_METADATA_DISABLED: "true" }, env);
  return store;
}

const ownKeys = { AWS_ACCESS_KEY_ID: credentials.accessKeyId, AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey };
const containerAt = (service: Pick<CredentialsService, "url">): Record<string, string> => ({
  AWS_CONTAINER_CREDENTIALS_FULL_URI: `${service.url}/creds`,
});
const metadataAt = (service: Pick<CredentialsService, "url">): Record<string, string> => ({
  AWS_EC2_METADATA_DISABLED: "false",
  AWS_EC2_METADATA_SERVICE_ENDPOINT: service.url,
});

async function list(store: ObjectStore): Promise<string[]> {
  const listed: string[] = [];
  for await (const { key } of store.list(await bucketOfOne(), "")) {
    listed.push(key);
  }
  return listed;
}

let bucket: Promise<string> | undefined;
const bucketOfOne = (): Promise<string> => (bucket ??= makeBucket());
async function makeBucket(): Promise<string> {
  const made = await s3.server().createBucket();
  await made.put("a", "a");
  return made.name;
}

async function failure(store: ObjectStore): Promise<JobError> {
  const error: unknown = await list(store).catch((caught: unknown) => caught);
  if (!(error instanceof JobError)) {
    throw new Error(`expected a JobError, got ${String(error)}`);
  }
  return error;
}

s3.describe("credentials for S3", () => {
  test("a container's credentials service that answers 503 at first is retried, and its credentials are used", async () => {
    await using service = await credentialsService();
    service.fault = { status: 503 };
    const warnings: string[] = [];
    const listed = list(storeWith(containerAt(service), { retrySeconds: 60, warnings }));
    await until(() => warnings.length > 0);
    service.fault = undefined;

    expect(await listed).toEqual(["a"]);
    expect(warnings[0]).toMatch(
      /: no credentials: the credentials service at 127\.0\.0\.1:\d+ answers 503; trying again/,
    );
  });

  test("a run exits with 75 when a container's credentials service is unavailable for longer than retry.max_seconds", async () => {
    await using service = await credentialsService();
    service.fault = { status: 503 };
    const answers503 = await failure(storeWith(containerAt(service)));
    service.fault = "hang";
    const startedMs = performance.now();
    const timeouts = { connectMs: 30_000, silenceMs: 800, requestMs: 60_000 };
    const hangs = await failure(storeWith(containerAt(service), { timeouts }));
    const hungMs = performance.now() - startedMs;
    const refuses = await failure(storeWith(containerAt({ url: "http://127.0.0.1:1" })));

    for (const error of [answers503, hangs, refuses]) {
      expect(error, error.message).toMatchObject({ exitCode: 75, code: "OBJECT_STORE" });
    }
    expect(hangs.message).toMatch(/no credentials: none came within 0\.6 s/);
    expect(hungMs).toBeLessThan(20_000); // the SDK alone takes four minutes
    expect(refuses.message).toMatch(/no credentials: the credentials service at 127\.0\.0\.1:1 does not answer/);
  });

  test("a run exits with 64 at once when a container's credentials service refuses, or answers with something else", async () => {
    await using service = await credentialsService();
    const setup = { retrySeconds: 300 };
    service.fault = { status: 403, body: '{"Code":"AccessDenied"}' };
    const denied = await failure(storeWith(containerAt(service), setup));
    service.fault = { status: 200, body: "<html>" };
    const other = await failure(storeWith(containerAt(service), setup));
    const foreign = await failure(storeWith(containerAt({ url: "http://192.0.2.1" }), setup));
    const noUrl = await failure(storeWith(containerAt({ url: "creds" }), setup));
    const token = { AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: "/nowhere/token" };
    const noToken = await failure(storeWith({ ...containerAt(service), ...token }, setup));

    for (const error of [denied, other, foreign, noUrl, noToken]) {
      expect(error, error.message).toMatchObject({ exitCode: 64, code: "PERMISSION" });
    }
    expect(denied.message).toMatch(/^looking for AWS credentials: the credentials service at .* refuses: 403$/);
    expect(other.message).toMatch(/answers with something other than credentials$/);
    expect(foreign.message).toMatch(/AWS_CONTAINER_CREDENTIALS_FULL_URI names no address/);
    expect(noUrl.message).toBe(foreign.message);
    expect(noToken.message).toMatch(/no such file.*\/nowhere\/token/);
  });

  test("EC2's metadata service is retried when it is unavailable, and an instance without a role ends the search with 64", async () => {
    await using service = await credentialsService();
    expect(await list(storeWith(metadataAt(service)))).toEqual(["a"]);
    service.fault = { status: 503 };
    const away = await failure(storeWith(metadataAt(service)));
    service.fault = "hang";
    const hangs = await failure(storeWith(metadataAt(service)));
    service.fault = { status: 404 };
    const noRole = await failure(storeWith(metadataAt(service), { retrySeconds: 300 }));
    const refused = await failure(storeWith(metadataAt({ url: "http://127.0.0.1:1" })));

    expect(away).toMatchObject({
      exitCode: 75,
      message: expect.stringMatching(/EC2 metadata service at .* answers 503/),
    });
    expect(hangs, hangs.message).toMatchObject({ exitCode: 75 });
    expect(refused, refused.message).toMatchObject({ exitCode: 75 });
    expect(noRole).toMatchObject({
      exitCode: 64,
      message: "looking for AWS credentials: there are none, and this instance has no role",
    });
  });

  test("a web identity ends the search for credentials with 64 when STS denies it, and with 75 when STS is unavailable or the token has just expired", async () => {
    await using service = await credentialsService();
    await using scratch = await scratchFolder();
    const file = join(scratch.path, "token");
    await writeFile(file, "a-token");
    const env = {
      AWS_ENDPOINT_URL_STS: `${service.url}/sts`,
      AWS_WEB_IDENTITY_TOKEN_FILE: file,
      AWS_ROLE_ARN: "arn:aws:iam::123456789012:role/scoring",
      AWS_REGION: "us-east-1",
    };
    const outcome = async (fault: CredentialsService["fault"]): Promise<number> => {
      service.fault = fault;
      return (await failure(storeWith(env, { retrySeconds: 0 }))).exitCode;
    };
    expect(await list(storeWith(env))).toEqual(["a"]);
    const denied = await outcome(stsError(403, "AccessDenied"));
    const deniedError = await failure(storeWith(env));
    const expired = await outcome(stsError(400, "ExpiredTokenException"));
    const away = await outcome({ status: 503 });
    service.fault = { status: 200, body: "<html>" };
    const other = await failure(storeWith(env));
    const noFile = await failure(storeWith({ ...env, AWS_WEB_IDENTITY_TOKEN_FILE: "/nowhere/token" }));

    expect({ denied, expired, away, noFile: noFile.exitCode }).toEqual({
      denied: 64,
      expired: 75,
      away: 75,
      noFile: 64,
    });
    expect(noFile.message).toContain("/nowhere/token");
    expect(other).toMatchObject({
      exitCode: 64,
      message: expect.stringMatching(/answers with something other than credentials$/),
    });
    expect(deniedError.message).toMatch(
      /^looking for AWS credentials: the service of the role answers AccessDenied, 403: said no$/,
    );
  });

  test("a search for credentials ends with 64 when the environment names no source", async () => {
    const nothing = await failure(storeWith({}, { retrySeconds: 300 }));
    const noProfile = await failure(storeWith({ AWS_PROFILE: "nobody" }, { retrySeconds: 300 }));

    expect(nothing).toMatchObject({ exitCode: 64, message: "looking for AWS credentials: there are none" });
    expect(noProfile).toMatchObject({
      exitCode: 64,
      message: "looking for AWS credentials: profile nobody has no credentials",
      hint: expect.stringContaining("AWS_PROFILE"),
    });
  });

  test("a profile's credential_process that fails for a moment is retried", async () => {
    await using scratch = await scratchFolder();
    const config = join(scratch.path, "config");
    const marker = join(scratch.path, "back");
    const found = JSON.stringify({ Version: 1, AccessKeyId: "testkey", SecretAccessKey: "testsecret123" });
    const program = join(scratch.path, "program.sh");
    await writeFile(program, `test -e ${marker} || { echo secret-of-the-program >&2; exit 1; }\necho '${found}'\n`);
    await writeFile(config, `[profile nightly]\ncredential_process = sh ${program}\n`);
    const warnings: string[] = [];
    const store = storeWith({ AWS_PROFILE: "nightly" }, { retrySeconds: 60, warnings });
    process.env["AWS_CONFIG_FILE"] = config;
    const listed = list(store);
    await until(() => warnings.length > 0);
    await writeFile(marker, "");

    expect(await listed).toEqual(["a"]);
    expect(warnings.join("\n")).toContain("no credentials: the credential_process of the profile failed");
    expect(warnings.join("\n")).not.toContain("secret-of-the-program");
  });

  test("a search for credentials ends as soon as the job is stopped, even when the service hangs", async () => {
    await using service = await credentialsService();
    service.fault = "hang";
    const job = new AbortController();
    const listed = list(storeWith(containerAt(service), { retrySeconds: 300, signal: job.signal }));
    const settled = listed.catch((error: unknown) => error);
    await until(() => service.requests.length > 0);
    job.abort(new JobError("SIGTERM", "stopped"));

    expect(await settled).toMatchObject({ code: "SIGTERM" });
  });
});

s3.describe("temporary credentials for S3", () => {
  test("credentials that the store refuses without a body, as in a response to HEAD, are renewed", async () => {
    await using service = await credentialsService();
    await using proxy = await httpProxy(s3.server().port);
    const object = { bucket: await bucketOfOne(), key: "a" };
    const store = storeWith(containerAt(service), { port: proxy.port });
    await store.head(object);
    const asked = service.requests.length;
    let refusals = 1;
    proxy.twist = () => (refusals-- > 0 ? { kind: "answer", status: 400, body: "" } : undefined);
    expect(await store.head(object)).toMatchObject({ sizeBytes: 1 });
    expect(service.requests.length).toBe(asked + 1);

    refusals = Number.POSITIVE_INFINITY;
    await expect(store.head(object)).rejects.toMatchObject({ code: "PERMISSION" });
  });

  test("credentials that the store refuses are renewed, also when their service was unavailable at first", async () => {
    await using service = await credentialsService();
    await using proxy = await httpProxy(s3.server().port);
    const warnings: string[] = [];
    const store = storeWith(containerAt(service), { port: proxy.port, retrySeconds: 60, warnings });
    expect(await list(store)).toEqual(["a"]);
    service.fault = { status: 503 };
    proxy.twist = () => (service.fault === undefined ? undefined : s3Error(403, "InvalidAccessKeyId"));
    const again = list(store);
    await until(() => proxy.requests.length > 3);
    service.fault = undefined;

    expect(await again).toEqual(["a"]);
    expect(warnings.join("\n")).toContain("answers 503");
  });

  test("temporary credentials that expire while their service is unavailable are retried until retry.max_seconds, and then the run ends with 75", async () => {
    await using service = await credentialsService();
    service.holdMs = 1500;
    const warnings: string[] = [];
    const store = storeWith(containerAt(service), { retrySeconds: 60, warnings });
    expect(await list(store)).toEqual(["a"]);
    const gone = storeWith(containerAt(service), { retrySeconds: 1 });
    expect(await list(gone)).toEqual(["a"]);
    service.fault = { status: 503 };
    await new Promise((done) => setTimeout(done, 1600));

    expect(await failure(gone)).toMatchObject({ exitCode: 75 });
    const again = list(store);
    await until(() => warnings.length > 0);
    service.fault = undefined;
    service.holdMs = 3_600_000;
    expect(await again).toEqual(["a"]);
  });

  test("a search for credentials that asks nobody takes nothing from what another one under way is told", async () => {
    const held: ServerResponse[] = [];
    await using service = createServer((_request, answer) => void held.push(answer)).listen(0, "127.0.0.1");
    await once(service, "listening");
    const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
    const refused = failure(storeWith(containerAt({ url })));
    await until(() => held.length === 1);

    expect(await list(storeWith(ownKeys))).toEqual(["a"]);
    held[0]?.writeHead(503, { connection: "close" }).end();

    expect(await refused).toMatchObject({
      exitCode: 75,
      message: expect.stringMatching(/credentials service at 127\.0\.0\.1:\d+ answers 503/) as string,
    });
  });
});

const call = { act: "listing s3://lake/in/", action: "list" } as Parameters<typeof classifyS3>[1];

const socketError = (code: string): Error => Object.assign(new Error("what Node says"), { code });

test.each([
  ["EPROTO", /does not speak TLS/],
  ["ERR_SSL_WRONG_VERSION_NUMBER", /does not speak TLS/],
  ["DEPTH_ZERO_SELF_SIGNED_CERT", /certificate is not trusted/],
])("a TLS handshake with a store that fails with %s is permanent", (code, message) => {
  expect(classifyS3(socketError(code), call)).toMatchObject({
    kind: "permanent",
    error: { code: "PERMISSION", message: expect.stringMatching(message) as string },
  });
});

test("an error of a store's connection that is not known is a bug", () => {
  expect(classifyS3(socketError("ERR_INVALID_ARG_TYPE"), call)).toEqual({ kind: "bug" });
});
