import { createPublicKey, createVerify, generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { chmod, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { expect, test } from "vitest";
import { azureProtocol } from "#src/stores/objects/azure.js";
import { gcsProtocol } from "#src/stores/objects/gcs.js";
import { type ObjectStore, openObjectStore } from "#src/stores/objects/store.js";
import { useAzurite } from "../../support/clouds.js";
import { scratchFolder } from "../../support/job.js";
import { azureAccount, azureKey, azureSas } from "../../support/store-servers.mjs";
import { retriesFor } from "../../support/retries.js";

interface World extends AsyncDisposable {
  readonly url: string;
  readonly folder: string;
  /** What the services were asked: method, path, body. */
  readonly asked: readonly string[];
  readonly authorized: readonly string[];
  fault: { readonly status: number; readonly body: string } | undefined;
  /** How many requests the store refuses with 401. */
  refusals: number;
  expiresIn: number;
}

async function openWorld(): Promise<World> {
  const scratch = await scratchFolder();
  const asked: string[] = [];
  const authorized: string[] = [];
  const server = createServer((request, answer) => {
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      if (/^\/(?:storage|account1)\//.test(url)) {
        authorized.push(String(headers.authorization));
        world.refusals -= 1;
        const fields = { generation: "7", size: "0", quota: headers["x-goog-user-project"] };
        const length = method === "HEAD" ? { "content-length": 0 } : {};
        answer.writeHead(world.refusals >= 0 ? 401 : 200, { etag: '"7"', ...length });
        answer.end(method === "HEAD" ? undefined : JSON.stringify(fields));
        return;
      }
      const more = headers["metadata"] ?? headers["metadata-flavor"] ?? headers["x-identity-header"] ?? "";
      asked.push([method, url, more, headers.authorization ?? "", body].filter((part) => part !== "").join(" "));
      const token = `token-${asked.length}`;
      const expireTime = new Date(Date.now() + 3_600_000).toISOString();
      const fields = { access_token: token, accessToken: token, expires_in: world.expiresIn, expireTime };
      answer.writeHead(world.fault?.status ?? 200).end(world.fault?.body ?? JSON.stringify(fields));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const world: World = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    folder: scratch.path,
    asked,
    authorized,
    fault: undefined,
    refusals: 0,
    expiresIn: 3600,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await scratch[Symbol.asyncDispose]();
    },
  };
  return world;
}

type Env = Readonly<Record<string, string | undefined>>;

function optionsAt(endpoint: string | undefined, env: Env, maxSeconds = 0): Parameters<typeof gcsProtocol>[0] {
  return {
    endpoint,
    env,
    timeouts: { connectMs: 2000, silenceMs: 5000, requestMs: 10_000 },
    retry: retriesFor(maxSeconds, () => undefined),
    signal: new AbortController().signal,
  };
}

function opened(protocolOf: typeof gcsProtocol, options: Parameters<typeof gcsProtocol>[0]): ObjectStore {
  return openObjectStore(protocolOf(options), options);
}

const gcs = ({ url, folder }: World, env: Env): ObjectStore =>
  opened(gcsProtocol, optionsAt(url, { CLOUDSDK_CONFIG: folder, ...env }));
const azure = ({ url }: World, env: Env): ObjectStore => opened(azureProtocol, optionsAt(`${url}/account1`, env));
const inGoogle = { bucket: "lake", key: "a" };
const inAzure = { bucket: "account1/lake", key: "a" };

async function credentialsFile(world: World, fields: object): Promise<Env> {
  const path = join(world.folder, "credentials.json");
  await writeFile(path, JSON.stringify(fields));
  return { GOOGLE_APPLICATION_CREDENTIALS: path };
}

const { privateKey, publicKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
  publicKeyEncoding: { type: "spki", format: "pem" },
});

test("a service account signs for its token, which is used until shortly before it expires", async () => {
  await using world = await openWorld();
  const account = {
    type: "service_account",
    client_email: "job@project",
    private_key: privateKey,
    private_key_id: "k1",
  };
  const env = await credentialsFile(world, { ...account, token_uri: `${world.url}/token` });
  using store = gcs(world, env);
  await Promise.all([store.head(inGoogle), store.head(inGoogle)]);
  await store.head(inGoogle);
  expect(world.authorized).toEqual(["Bearer token-1", "Bearer token-1", "Bearer token-1"]);
  expect(world.asked).toHaveLength(1);
  const assertion = new URLSearchParams(world.asked[0]?.split(" ")[2]).get("assertion") ?? "";
  const [head = "", claims = "", signature = ""] = assertion.split(".");
  const verify = createVerify("RSA-SHA256").update(`${head}.${claims}`);
  expect(verify.verify(createPublicKey(publicKey), signature, "base64url")).toBe(true);
  expect(JSON.parse(Buffer.from(claims, "base64url").toString())).toMatchObject({
    iss: "job@project",
    aud: `${world.url}/token`,
    scope: "https://www.googleapis.com/auth/devstorage.read_write",
  });
});

test("a token that is refused, or about to expire, is renewed", async () => {
  await using world = await openWorld();
  using store = gcs(world, { GCE_METADATA_HOST: new URL(world.url).host });
  world.refusals = 1;
  await store.head(inGoogle);
  expect(world.authorized).toEqual(["Bearer token-1", "Bearer token-2"]);
  world.expiresIn = 100;
  using brief = gcs(world, { GCE_METADATA_HOST: new URL(world.url).host });
  await brief.head(inGoogle);
  await brief.head(inGoogle);
  expect(world.authorized.slice(2)).toEqual(["Bearer token-3", "Bearer token-4"]);
  expect(world.asked[0]).toBe("GET /computeMetadata/v1/instance/service-accounts/default/token Google");
});

test("a token is not sent where others could read it on its way", async () => {
  await using world = await openWorld();
  const far = optionsAt("http://store.example", {
    GCE_METADATA_HOST: new URL(world.url).host,
    CLOUDSDK_CONFIG: world.folder,
  });
  using store = opened(gcsProtocol, far);
  await expect(store.head(inGoogle)).rejects.toMatchObject({
    code: "PERMISSION",
    message: "no token is sent to http://store.example: it would be readable on its way",
  });
});

test("the login of gcloud, another issuer's token and an impersonated account are application default credentials", async () => {
  await using world = await openWorld();
  const { url, folder } = world;
  const user = {
    type: "authorized_user",
    client_id: "id",
    client_secret: "s",
    refresh_token: "r",
    token_uri: `${url}/user`,
  };
  await writeFile(join(folder, "application_default_credentials.json"), JSON.stringify(user));
  using ofGcloud = gcs(world, {});
  await ofGcloud.head(inGoogle);
  expect(world.asked).toEqual(["POST /user client_id=id&client_secret=s&grant_type=refresh_token&refresh_token=r"]);

  await writeFile(join(folder, "subject"), "their-token\n");
  const federated = {
    type: "external_account",
    audience: "//iam/pool",
    subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
    token_url: `${url}/sts`,
    credential_source: { file: join(folder, "subject") },
    service_account_impersonation_url: `${url}/impersonate`,
  };
  using ofPod = gcs(world, await credentialsFile(world, federated));
  await ofPod.head(inGoogle);
  expect(world.asked[1]).toContain("POST /sts audience=%2F%2Fiam%2Fpool");
  expect(world.asked[1]).toContain("subject_token=their-token&");
  expect(world.asked[2]).toMatch(/^POST \/impersonate Bearer token-2 \{"lifetime":"3600s"/);
  expect(world.authorized.at(-1)).toBe("Bearer token-3");

  const impersonated = { type: "impersonated_service_account", source_credentials: user };
  using other = gcs(
    world,
    await credentialsFile(world, { ...impersonated, service_account_impersonation_url: `${url}/as` }),
  );
  await other.head(inGoogle);
  expect(world.asked.slice(3).map((asked) => asked.split(" ")[1])).toEqual(["/user", "/as"]);
});

test("Google credentials that are missing, wrong or refused are 64 without their secrets; a service that is away is 75", async () => {
  await using world = await openWorld();
  const failing = async (env: Env): Promise<unknown> => {
    using store = gcs(world, env);
    return await store.head(inGoogle).catch((error: unknown) => error);
  };
  const nowhere = await failing({ GOOGLE_APPLICATION_CREDENTIALS: "/nowhere.json" });
  expect(nowhere).toMatchObject({ exitCode: 64, message: "looking for Google credentials: /nowhere.json: ENOENT" });

  const account = { type: "service_account", client_email: "job@project", token_uri: `${world.url}/token` };
  const noKey = await failing(await credentialsFile(world, { ...account, private_key: "secret-text" }));
  expect(noKey).toMatchObject({ exitCode: 64, message: expect.stringContaining("no private key in PEM") });
  expect(JSON.stringify(noKey) + String(noKey)).not.toContain("secret-text");

  const env = await credentialsFile(world, { ...account, private_key: privateKey });
  world.fault = { status: 400, body: '{"error":"invalid_grant","error_description":"Invalid JWT Signature."}' };
  expect(await failing(env)).toMatchObject({
    exitCode: 64,
    message: "looking for credentials: Google refuses: 400: Invalid JWT Signature.",
  });
  world.fault = { status: 503, body: "" };
  expect(await failing(env)).toMatchObject({ exitCode: 75, message: expect.stringContaining("Google answers 503") });
});

test("a service principal, a workload identity and a managed identity have tokens for Azure", async () => {
  await using world = await openWorld();
  const { url, folder } = world;
  const principal = { AZURE_AUTHORITY_HOST: url, AZURE_TENANT_ID: "t", AZURE_CLIENT_ID: "c" };
  await writeFile(join(folder, "federated"), "pod-token");
  for (const env of [
    { ...principal, AZURE_CLIENT_SECRET: "hidden" },
    { ...principal, AZURE_FEDERATED_TOKEN_FILE: join(folder, "federated") },
    { IDENTITY_ENDPOINT: `${url}/msi`, IDENTITY_HEADER: "h", AZURE_CLIENT_ID: "c" },
    { AZURE_POD_IDENTITY_AUTHORITY_HOST: url },
  ]) {
    using store = azure(world, env);
    await store.head(inAzure);
  }
  const [secret, federated, app, machine] = world.asked;
  expect(secret).toBe(
    "POST /t/oauth2/v2.0/token client_id=c&grant_type=client_credentials&scope=https%3A%2F%2Fstorage.azure.com%2F.default&client_secret=hidden",
  );
  expect(federated).toContain("client_assertion=pod-token&");
  expect(app).toBe("GET /msi?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=c h");
  expect(machine).toBe(
    "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F true",
  );
  expect(world.authorized).toEqual(["Bearer token-1", "Bearer token-2", "Bearer token-3", "Bearer token-4"]);

  world.fault = {
    status: 401,
    body: '{"error":"invalid_client","error_description":"AADSTS7000215: wrong secret\\r\\nTrace"}',
  };
  using store = azure(world, { ...principal, AZURE_CLIENT_SECRET: "hidden" });
  const refused: unknown = await store.head(inAzure).catch((error: unknown) => error);
  expect(refused).toMatchObject({
    exitCode: 64,
    message: "looking for credentials: Microsoft Entra ID refuses: 401: AADSTS7000215: wrong secret",
  });
  expect(String(refused)).not.toContain("hidden");
});

test("where there is no other identity, the one of the Azure CLI is used", async () => {
  await using world = await openWorld();
  const az = join(world.folder, "az");
  await writeFile(
    az,
    `#!/bin/sh\necho '{"accessToken":"of-the-cli","expires_on":${Math.round(Date.now() / 1000) + 3600}}'\n`,
  );
  await chmod(az, 0o755);
  const path = process.env["PATH"];
  process.env["PATH"] = `${world.folder}${delimiter}${path}`;
  try {
    using store = azure(world, { AZURE_POD_IDENTITY_AUTHORITY_HOST: "http://127.0.0.1:9" });
    await store.head(inAzure);
    expect(world.authorized).toEqual(["Bearer of-the-cli"]);
  } finally {
    process.env["PATH"] = path;
  }
});

const azurite = useAzurite();
azurite.describe("an account of Azure", () => {
  const connection = (endpoint: string, more: string): Env => ({
    AZURE_STORAGE_CONNECTION_STRING: `AccountName=${azureAccount};BlobEndpoint=${endpoint};${more}`,
  });

  test.each([
    ["its key", () => ({ AZURE_STORAGE_KEY: azureKey })],
    ["a SAS", () => ({ AZURE_STORAGE_SAS_TOKEN: `?${azureSas()}` })],
    ["a connection string with its key", (at: string) => connection(at, `AccountKey=${azureKey}`)],
    [
      "the connection string that the portal makes with a SAS",
      (at: string) => ({ AZURE_STORAGE_CONNECTION_STRING: `BlobEndpoint=${at};SharedAccessSignature=${azureSas()}` }),
    ],
    ["a connection string with a SAS", (at: string) => connection(at, `SharedAccessSignature=${azureSas()}`)],
  ] as const)("is reached with %s", async (_what, envAt) => {
    const bucket = await azurite.server().createBucket();
    const env: Env = envAt(azurite.server().endpointAt());
    const endpoint = env["AZURE_STORAGE_CONNECTION_STRING"] === undefined ? azurite.server().endpointAt() : undefined;
    using store = opened(azureProtocol, optionsAt(endpoint, env));
    const at = (key: string): typeof inAzure => ({ bucket: bucket.name, key });
    expect(await store.create(at("a b"), { body: "rows", conditional: true })).toEqual(expect.any(String));
    expect(await store.create(at("a b"), { body: "others", conditional: true })).toBeUndefined();
    expect(await store.copy(at("a b"), at("c"))).toBe(true);
    expect((await store.readText(at("c")))?.text).toBe("rows");
    await store.remove(at("c"));
    expect(await bucket.keys()).toEqual(["a b"]);
  });

  test("refuses a wrong key and a SAS that may only read: 64, and neither is told", async () => {
    const bucket = await azurite.server().createBucket();
    const wrong = Buffer.from("wrong").toString("base64");
    const readOnly = azureSas("r");
    for (const env of [{ AZURE_STORAGE_KEY: wrong }, { AZURE_STORAGE_SAS_TOKEN: readOnly }]) {
      using store = opened(azureProtocol, optionsAt(azurite.server().endpointAt(), env));
      const refused: unknown = await store.put({ bucket: bucket.name, key: "a" }, "x").catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: "PERMISSION", exitCode: 64 });
      expect(String(refused) + JSON.stringify(refused)).not.toMatch(/sig=|d3Jvbmc/);
    }
  });
});
