import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { sha256Of } from "#src/base/sha256.js";
import {
  type CatalogLogin,
  type CatalogOptions,
  type CatalogTable,
  catalogTable,
  type NamedTable,
} from "#src/sources/lake/rest-catalog.js";
import { newestMetadata } from "#src/sources/lake/iceberg.js";
import { catalogSource, credentialsOf } from "#src/sources/lake/source.js";
import type { ListedShard } from "#src/run/plan/compare.js";
import { diskSource } from "#src/sources/disk.js";
import { createSigner } from "#src/stores/objects/aws-credentials.js";
import { retryClock } from "../support/asked-places.js";
import { authorizationsByBotocore } from "../support/botocore.js";
import { scratch } from "../support/job.js";
import { growingLake, missing, skipped } from "../support/lake-writers.js";
import { diskReader, closingTools } from "../support/lakes.js";
import { validators } from "../support/validators.js";

const table = {
  "metadata-location": "s3://lake/db/t/metadata/7.json",
  metadata: { "table-uuid": "u-1", location: "s3://lake/db/t", "last-updated-ms": 1 },
  config: {},
};

type Answer = (request: IncomingMessage & { readonly sent: string }, response: ServerResponse) => void;

const json =
  (body: unknown, status = 200): Answer =>
  (_, response) =>
    void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

/** A catalog that answers as it is told, by the beginning of a path; the first of several answers is gone after it. */
let answers: Record<string, Answer[]>;
let asked: { readonly path: string; readonly headers: IncomingMessage["headers"]; readonly sent: string }[];
let url: string;
let server: ReturnType<typeof createServer>;

beforeEach(async () => {
  asked = [];
  answers = { "/v1/config": [json({ defaults: {}, overrides: {} })], "/v1/namespaces/db/tables/t?": [json(table)] };
  server = createServer((request, response) => {
    let sent = "";
    request.on("data", (bytes: Buffer) => (sent += bytes.toString()));
    request.on("end", () => {
      const path = request.url ?? "";
      asked.push({ path, headers: request.headers, sent });
      const of = Object.keys(answers).find((prefix) => path.startsWith(prefix)) ?? "";
      const [first = json({ error: { message: "not here", type: "NoSuch", code: 404 } }, 404), ...others] =
        answers[of] ?? [];
      answers[of] = others.length === 0 ? [first] : others;
      first(Object.assign(request, { sent }), response);
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const none: CatalogLogin = { kind: "none" };
const token: CatalogLogin = { kind: "token", token: () => Promise.resolve("a-secret-token") };

async function load(login: CatalogLogin = none, more: Partial<CatalogOptions> = {}): Promise<CatalogTable> {
  return await open({ login, ...more }).load();
}

function open(more: Partial<CatalogOptions>): NamedTable {
  const { signal } = new AbortController();
  const options = {
    url,
    warehouse: undefined,
    login: none,
    isVending: true,
    of: "input" as const,
    retry: retryClock(),
    signal,
    findProxy: () => undefined,
  };
  return catalogTable({ ...options, ...more }, { namespace: ["db"], name: "t" }, "reading table db.t");
}

const paths = (): string[] => asked.map(({ path }) => path);

test("prefix, separator and warehouse are those of the configuration, and each level of a namespace is escaped", async () => {
  answers["/v1/config"] = [
    json({
      defaults: { prefix: "ignored", "s3.region": "eu-west-1" },
      overrides: { prefix: "a%2Fb", "namespace-separator": "%2E" },
    }),
  ];
  answers["/v1/a%2Fb/"] = [json(table)];
  const { signal } = new AbortController();
  const options = {
    url: `${url}/`,
    warehouse: "my house",
    login: none,
    isVending: false,
    of: "input" as const,
    retry: retryClock(),
    signal,
    findProxy: () => undefined,
  };
  const loaded = await catalogTable(options, { namespace: ["d/b", "x y"], name: "ä" }, "reading").load();
  expect(paths()).toEqual([
    "/v1/config?warehouse=my%20house",
    "/v1/a%2Fb/namespaces/d%2Fb%2Ex%20y/tables/%C3%A4?snapshots=refs",
  ]);
  expect(asked[1]?.headers["x-iceberg-access-delegation"]).toBeUndefined();
  expect(loaded).toMatchObject({ uuid: "u-1", storage: { region: "eu-west-1" }, credentials: undefined });
});

test("of several credentials those count that are the nearest to the table", async () => {
  const keys = (name: string) => ({ "s3.access-key-id": name, "s3.secret-access-key": "s", "s3.session-token": "t" });
  answers["/v1/namespaces/db/tables/t?"] = [
    json({
      ...table,
      config: keys("of-all"),
      "storage-credentials": [
        {
          prefix: "s3://lake/db/t",
          config: { ...keys("of-table"), "s3.session-token-expires-at-ms": "1800000000000" },
        },
        { prefix: "s3://lake/", config: keys("of-bucket") },
        { prefix: "s3://lake/db/tables", config: keys("of-others") },
      ],
    }),
  ];
  expect((await load()).credentials).toEqual({
    accessKeyId: "of-table",
    secretAccessKey: "s",
    sessionToken: "t",
    expiration: new Date(1_800_000_000_000),
  });
  expect(asked[1]?.headers["x-iceberg-access-delegation"]).toBe("vended-credentials");
});

describe("what fails for a while is tried again:", () => {
  const lost: Answer = (_, response) => void response.socket?.resetAndDestroy();
  const cut: Answer = (_, response) => {
    response.writeHead(200, { "content-length": 1000 });
    response.write("{", () => response.socket?.resetAndDestroy());
  };
  const busy: Answer = (_, response) => void response.writeHead(429, { "retry-after": "2" }).end();
  test.each<[string, Answer]>([
    ["429", busy],
    ["503", json({}, 503)],
    ["a lost answer", lost],
    ["an answer that is cut off", cut],
    ["garbage", (_, response) => void response.end("<html>")],
  ])("%s", async (_, answer) => {
    for (const path of ["/v1/config", "/v1/namespaces/db/tables/t?"]) {
      answers[path]?.unshift(answer, answer);
    }
    expect((await load()).uuid).toBe("u-1");
    expect(asked).toHaveLength(6);
  });

  test("and ends with 75 where it stays so", async () => {
    answers["/v1/namespaces/db/tables/t?"] = [busy];
    await expect(load()).rejects.toMatchObject({ exitCode: 75, message: expect.stringContaining("429") as string });
    answers["/v1/namespaces/db/tables/t?"] = [(_, response) => void response.end("[".repeat(2 ** 26 + 1))];
    const retry = retryClock({ maxSeconds: 0 });
    await expect(load(none, { retry })).rejects.toMatchObject({
      exitCode: 75,
      message: expect.stringContaining("64 MiB") as string,
    });
  });
});

test.each<[string, string, Answer, CatalogLogin, RegExp]>([
  [
    "401",
    "/v1/config",
    json({ error: { message: "a-secret-token is bad" } }, 401),
    token,
    /refuses the login: HTTP 401: \*\*\* is bad$/,
  ],
  ["403", "/v1/namespaces/db/tables/t?", json({ error: { message: "no" } }, 403), token, /denies it: HTTP 403: no$/],
  ["400", "/v1/namespaces/db/tables/t?", json({ message: "what?" }, 400), token, /answers HTTP 400: what\?$/],
  ["404 of the configuration", "/v1/config", json("?", 404), token, /answers HTTP 404$/],
  ["an answer of another server", "/v1/config", json([1]), none, /does not answer like an Iceberg REST catalog/],
  [
    "no metadata file",
    "/v1/namespaces/db/tables/t?",
    json({ ...table, "metadata-location": null }),
    none,
    /names no metadata file/,
  ],
  ["no uuid", "/v1/namespaces/db/tables/t?", json({ ...table, metadata: {} }), none, /metadata\.table-uuid/],
])("%s ends with 64", async (_, path, answer, login, message) => {
  answers[path] = [answer];
  await expect(load(login)).rejects.toMatchObject({ exitCode: 64, message: expect.stringMatching(message) as string });
});

test("neither a redirect nor the configuration leads to another host; within the host a redirect is followed", async () => {
  const other = "http://127.0.0.2:1";
  const moved =
    (to: string): Answer =>
    (_, response) =>
      void response.writeHead(302, { location: to }).end();
  answers["/v1/config"] = [moved(`${other}/v1/config?token=x`)];
  await expect(load(token)).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringMatching(/elsewhere: HTTP 302: http:\/\/127\.0\.0\.2:1\/v1\/config$/) as string,
  });
  answers["/v1/config"] = [json({ overrides: { uri: `${other}/x` } })];
  await expect(load(token)).rejects.toMatchObject({ exitCode: 64, message: expect.stringContaining(other) as string });

  answers["/v1/config"] = [json({ overrides: { uri: `${url}/deep/` } })];
  answers["/deep/v1/namespaces"] = [moved("/v1/namespaces/db/tables/t?moved")];
  expect((await load(token)).uuid).toBe("u-1");
  expect(asked.at(-1)?.headers.authorization).toBe("Bearer a-secret-token");
});

describe("OAuth 2:", () => {
  const secret = "s3cret&=ä";
  const client = {
    kind: "oauth2",
    clientId: "me",
    clientSecret: () => Promise.resolve(secret),
    scope: "catalog",
  } as const;
  const login: CatalogLogin = { ...client, tokenUrl: undefined };

  test("a token is fetched once, and anew before it expires, or when it is refused", async () => {
    const give = (access_token: string): Answer => json({ access_token, expires_in: 600 });
    answers["/v1/oauth/tokens"] = [give("one"), give("two"), give("three")];
    const { signal } = new AbortController();
    const retry = retryClock();
    const options = {
      url,
      warehouse: undefined,
      login,
      isVending: true,
      of: "input" as const,
      retry,
      signal,
      findProxy: () => undefined,
    };
    const again = catalogTable(options, { namespace: ["db"], name: "t" }, "reading table db.t").load;
    await again();
    await again();
    const used = (): (string | undefined)[] =>
      asked.filter(({ path }) => !path.startsWith("/v1/oauth")).map(({ headers }) => headers.authorization);
    expect(used()).toEqual(Array(4).fill("Bearer one"));
    expect(Object.fromEntries(new URLSearchParams(asked[0]?.sent))).toEqual({
      grant_type: "client_credentials",
      client_id: "me",
      client_secret: secret,
      scope: "catalog",
    });
    expect(asked[0]?.headers.authorization).toBeUndefined();

    await retry.sleep(541_000);
    await again();
    expect(used().slice(4)).toEqual(Array(2).fill("Bearer two"));
    answers["/v1/namespaces/db/tables/t?"]?.unshift(json({ error: { message: "expired" } }, 419));
    await again();
    expect(used().slice(6)).toEqual(["Bearer two", "Bearer two", "Bearer three"]);
  });

  test("a token that is refused anew ends with 64, and so does a client that is", async () => {
    answers["/v1/oauth/tokens"] = [json({ access_token: "one" })];
    answers["/v1/config"] = [json({ error: { message: "never" } }, 401)];
    await expect(load(login)).rejects.toMatchObject({
      code: "PERMISSION",
      message: expect.stringMatching(/HTTP 401: never$/) as string,
    });
    expect(asked).toHaveLength(4);
    answers["/v1/oauth/tokens"] = [json({ error: "invalid_client", error_description: `is it ${secret}?` }, 400)];
    await expect(load(login)).rejects.toMatchObject({
      code: "PERMISSION",
      message: expect.stringMatching(/gives out no token: HTTP 400: invalid_client: is it \*\*\*\?$/) as string,
    });
    answers["/v1/oauth/tokens"] = [(_, response) => void response.writeHead(307, { location: "/v1/config" }).end()];
    await expect(load(login)).rejects.toMatchObject({
      exitCode: 64,
      message: expect.stringMatching(/HTTP 307/) as string,
    });
  });

  test("the server of tokens may be another one", async () => {
    answers["/idp/token"] = [json({ access_token: "one" })];
    await load({ ...client, tokenUrl: `${url}/idp/token` });
    expect(paths()[0]).toBe("/idp/token");
  });
});

test("a signed request has the headers that its signature gives it", async () => {
  const seen: string[] = [];
  await load({
    kind: "signed",
    sign({ url: of, headers }) {
      seen.push(of.pathname);
      return Promise.resolve({ ...headers, authorization: "AWS4-HMAC-SHA256 of-tests" });
    },
  });
  expect(seen).toEqual(["/v1/config", "/v1/namespaces/db/tables/t"]);
  expect(asked.map(({ headers }) => headers.authorization)).toEqual(Array(2).fill("AWS4-HMAC-SHA256 of-tests"));
});

test.skipIf(validators.missing !== undefined)(
  `requests of a table that is read, made and written to are signed as botocore signs them, with their bodies${validators.skipped}`,
  async () => {
    const keys = {
      AWS_ACCESS_KEY_ID: "AKID",
      AWS_SECRET_ACCESS_KEY: "s3cret-key",
      AWS_SESSION_TOKEN: "a/token+of=tests",
    };
    for (const [name, value] of Object.entries(keys)) {
      vi.stubEnv(name, value);
    }
    const limits = { searchMs: 1000, signal: new AbortController().signal };
    const scope = { region: "eu-west-1", service: "s3tables" };
    const prefix = encodeURIComponent("arn:aws:s3tables:eu-west-1:123456789012:bucket/a b");
    answers["/v1/config"] = [json({ defaults: {}, overrides: { prefix } })];
    answers[`/v1/${prefix}`] = [json(table)];
    const named = open({
      warehouse: "arn:aws:s3tables:eu-west-1:123456789012:bucket/a b",
      login: { kind: "signed", sign: (request) => createSigner(limits)(request, scope) },
    });
    await named.load();
    await named.create({ schema: '{"fields":[]}', partitionSpec: "{}" });
    expect(await named.commit({ requirements: "[]", updates: '[{"summary":"Größe 8633778438556666410"}]' })).toBe(true);
    vi.unstubAllEnvs();
    expect(asked.map(({ sent }) => sent.includes("Größe"))).toContain(true);
    const signed = asked.map(({ path, headers, sent }) => ({ path, headers, body: sent }));
    expect(signed.map(({ headers }) => headers.authorization)).toEqual(
      authorizationsByBotocore(signed, "eu-west-1/s3tables", keys),
    );
    // The digest that is signed is that of the body.
    expect(signed.map(({ headers }) => headers["x-amz-content-sha256"])).toEqual(
      signed.map(({ body }) => sha256Of(body)),
    );
  },
);

test.skipIf(missing !== undefined)(
  `files of a table are read through its store, others as before; where its version is gone, a run ends with 66${skipped}`,
  async () => {
    const lake = await growingLake("iceberg", scratch.path);
    await lake.act("append 0 10");
    const disk = diskSource({ folder: "/", output: undefined });
    const own = { ...disk, open: () => Promise.reject(new Error("not of the table")) };
    const files = { ...disk, readAhead: { ...disk.readAhead, files: 99 } };
    const metadata = await newestMetadata(diskReader(), lake.table);
    await using source = catalogSource(own, {
      table: "db.t",
      at: "latest",
      load: () => Promise.resolve({ ...catalogs, metadata, location: lake.table }),
      open: () => Promise.resolve({ files, folder: lake.table, tools: closingTools }),
    });
    expect(source.readAhead.files).toBe(disk.readAhead.files);
    const { table: planned, shards } = await source.list(["db.t"]);
    expect(source.readAhead.files).toBe(99);
    const [shard] = shards as [ListedShard];
    await using opened = await source.open(shard);
    expect(opened.path).toBe(shard.uri);
    await expect(source.open({ ...shard, uri: "/golden.parquet" })).rejects.toThrow("not of the table");

    await rm(join(lake.table, "metadata"), { recursive: true });
    await expect(source.list(["db.t"], { table: planned })).rejects.toMatchObject({ code: "INPUT_CHANGED" });
  },
);

const catalogs: CatalogTable = {
  uuid: "u-1",
  metadata: "s3://lake/m.json",
  location: "s3://lake/t",
  storage: { endpoint: undefined, region: undefined, pathStyle: undefined },
  credentials: undefined,
};

test("credentials are asked for again after the first ones, and a catalog that fails then is retried or not", async () => {
  const loaded = (key?: string): CatalogTable => ({
    ...catalogs,
    credentials: key === undefined ? undefined : { accessKeyId: key, secretAccessKey: "s" },
  });
  expect(credentialsOf(loaded(), () => Promise.resolve(loaded("b")))).toBeUndefined();
  const give = credentialsOf(loaded("a"), () => Promise.resolve(loaded("b")));
  expect([(await give?.())?.accessKeyId, (await give?.())?.accessKeyId]).toEqual(["a", "b"]);

  for (const [answer, isFinal] of [
    [json({}, 503), false],
    [json({ error: { message: "revoked" } }, 403), true],
  ] as const) {
    answers["/v1/config"] = [answer];
    const failing = credentialsOf(loaded("a"), () => load(token, { retry: retryClock({ maxSeconds: 0 }) }));
    await failing?.();
    const failed = await failing?.().catch((error: unknown) => error);
    expect(failed).toMatchObject({
      name: "CredentialsError",
      hint: isFinal ? (expect.any(String) as string) : undefined,
    });
  }
});
