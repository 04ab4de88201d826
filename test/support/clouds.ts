import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type StorePlace, openStoreAt } from "#src/stores/objects/open.js";
import type { ObjectStore, RequestOptions } from "#src/stores/objects/store.js";
import { parseObjectUri } from "#src/job/jobfile/uri.js";
import { openReaderThread } from "#src/sources/reader.js";
import { objectSource } from "#src/sources/objects.js";
import type { Source } from "#src/sources/source.js";
import { openSpool } from "#src/base/spool.js";
import { freePort, untilReady } from "./s3-server.mjs";
import { type Bucket, type StoreServer, type UsedServer, useS3, useServer } from "./s3.js";
import { firstOf } from "./torture.js";
import { azureAccount, azureKey, azureSas, findAzurite, findFakeGcs } from "./store-servers.mjs";
import { retriesFor } from "./retries.js";

export const useAzurite = (): UsedServer<StoreServer> => useServer("Azure", findAzurite(), startAzurite);

/** Google's storage as fake-gcs-server has it: it ignores conditions of GET and DELETE, and those of its XML API. */
export const useFakeGcs = (): UsedServer<StoreServer> => useServer("Google storage", findFakeGcs(), startFakeGcs);

interface NamedServer extends UsedServer<StoreServer> {
  readonly name: string;
}

const openers: readonly (() => NamedServer)[] = [
  () => ({ name: "S3", ...useS3() }),
  () => ({ name: "Google Cloud Storage", ...useFakeGcs() }),
  () => ({ name: "Azure", ...useAzurite() }),
];

export const useStores = (): readonly NamedServer[] => openers.map((open) => open());

/** For what a store's own tests show of each: the short form tries S3. */
export const useFirstStores = (): readonly NamedServer[] => firstOf(openers).map((open) => open());

/** Opens the store that `uri` is in. The environment has its credentials from then on. */
export async function objectsAt(server: StoreServer, uri: string, setup: ObjectsSetup = {}): Promise<ObjectStore> {
  return await openStoreAt(placeIn(server, uri, setup), requestsOf(setup));
}

/** Opens a source of shards in the store that `uri` is in, which reads in a thread of its own, as the command does. */
export function sourceIn(server: StoreServer, uri: string, spoolRoot: string): Source {
  const reader = openReaderThread(placeIn(server, uri, {}), requestsOf({}));
  const spool = openSpool({ use: "in", root: spoolRoot, writer: "test.1", isDead: () => false, maxBytes: 1024 ** 3 });
  return objectSource({ reader, spool });
}

export interface ObjectsSetup {
  /** Of a proxy before the server. */
  readonly port?: number;
  readonly retrySeconds?: number;
  readonly warn?: (message: string) => void;
  readonly signal?: AbortSignal;
}

function placeIn(server: StoreServer, uri: string, { port }: ObjectsSetup): StorePlace {
  const { AWS_ENDPOINT_URL_S3: _, ...env } = server.env();
  Object.assign(process.env, env);
  return { scheme: parseObjectUri(uri).scheme, settings: { endpoint: server.endpointAt(port) } };
}

function requestsOf({
  retrySeconds = 0,
  warn = () => undefined,
  signal = new AbortController().signal,
}: ObjectsSetup): RequestOptions {
  return {
    timeouts: { connectMs: 10_000, silenceMs: 60_000, requestMs: 120_000 }, // requests are held
    retry: retriesFor(retrySeconds, warn),
    signal,
  };
}

async function startAzurite(script: string): Promise<StoreServer> {
  const port = await freePort();
  const args = ["--blobHost", "127.0.0.1", "--blobPort", String(port), "--inMemoryPersistence", "--disableTelemetry"];
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-azurite-"));
  // Every ten minutes it sweeps bytes that no blob refers to. With that, 2 of 200 kills had a reader that could not read a
  // part, both at once; without it, none. That the sweep was the cause is not proved.
  const constants = join(dirname(script), "utils/constants.js");
  const neverSweep = join(scratch, "never-sweep.cjs");
  writeFileSync(neverSweep, `require(${JSON.stringify(constants)}).DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1;`);
  const end = await startProgram(process.execPath, ["--require", neverSweep, script, ...args, "--silent"], port);
  const stop = async (): Promise<void> => {
    await end();
    rmSync(scratch, { recursive: true, force: true });
  };
  const endpointAt = (at = port): string => `http://127.0.0.1:${at}/${azureAccount}`;
  const sas = azureSas();
  const url = (path: string, query = ""): string => `${endpointAt()}/${path}?${query}${sas}`;
  const env = { AZURE_STORAGE_ACCOUNT: azureAccount, AZURE_STORAGE_KEY: azureKey };
  let containers = 0;
  return {
    port,
    endpointAt,
    env: () => env,
    async createBucket(name = `container-${containers + 1}`) {
      containers += 1;
      await ask(url(name, "restype=container&"), { method: "PUT" });
      const at = (key: string): string => url(`${name}/${key.split("/").map(encodeURIComponent).join("/")}`);
      return bucketOf(`${azureAccount}/${name}`, `az://${azureAccount}/${name}`, {
        endpointAt,
        env: () => env,
        put: (key, body) => ask(at(key), { method: "PUT", body, headers: { "x-ms-blob-type": "BlockBlob" } }),
        get: (key) => ask(at(key)),
        remove: (key) => ask(at(key), { method: "DELETE" }),
        async page(after) {
          const marker = after === undefined ? "" : `&marker=${encodeURIComponent(after)}`;
          const xml = await (await ask(url(name, `restype=container&comp=list${marker}&`))).text();
          const keys = [...xml.matchAll(/<Name>([^<]*)<\/Name>/g)].map(([, key = ""]) => key.replaceAll("&amp;", "&"));
          return { keys, next: /<NextMarker>([^<]+)<\/NextMarker>/.exec(xml)?.[1] };
        },
      });
    },
    stop,
  };
}

async function startFakeGcs(program: string): Promise<StoreServer> {
  const port = await freePort();
  const args = ["-scheme", "http", "-host", "127.0.0.1", "-port", String(port), "-backend", "memory"];
  const stop = await startProgram(program, [...args, "-public-host", `127.0.0.1:${port}`, "-log-level", "error"], port);
  const endpointAt = (at = port): string => `http://127.0.0.1:${at}`;
  const env = { STORAGE_EMULATOR_HOST: `127.0.0.1:${port}` };
  let buckets = 0;
  return {
    port,
    endpointAt,
    env: () => env,
    async createBucket(name = `bucket-${buckets + 1}`) {
      buckets += 1;
      const headers = { "content-type": "application/json" };
      await ask(`${endpointAt()}/storage/v1/b?project=test`, {
        method: "POST",
        body: JSON.stringify({ name }),
        headers,
      });
      const all = `${endpointAt()}/storage/v1/b/${name}/o`;
      const at = (key: string): string => `${all}/${encodeURIComponent(key)}`;
      return bucketOf(name, `gs://${name}`, {
        endpointAt,
        env: () => env,
        put: (key, body) =>
          ask(`${endpointAt()}/upload/storage/v1/b/${name}/o?uploadType=media&name=${encodeURIComponent(key)}`, {
            method: "POST",
            body,
          }),
        get: (key) => ask(`${at(key)}?alt=media`),
        remove: (key) => ask(at(key), { method: "DELETE" }),
        async page(after) {
          const token = after === undefined ? "" : `?pageToken=${encodeURIComponent(after)}`;
          const { items = [], nextPageToken: next } = (await (await ask(`${all}${token}`)).json()) as {
            readonly items?: readonly { readonly name: string }[];
            readonly nextPageToken?: string;
          };
          return { keys: items.map((item) => item.name), next };
        },
      });
    },
    stop,
  };
}

interface BucketCalls extends Pick<Bucket, "endpointAt" | "env"> {
  readonly put: (key: string, body: Uint8Array | string) => Promise<unknown>;
  readonly get: (key: string) => Promise<Response>;
  readonly remove: (key: string) => Promise<unknown>;
  readonly page: (
    after: string | undefined,
  ) => Promise<{ readonly keys: readonly string[]; readonly next: string | undefined }>;
}

function bucketOf(name: string, uri: string, { put, get, remove, page, ...server }: BucketCalls): Bucket {
  return {
    name,
    uri,
    ...server,
    put: async (key, body) => void (await put(key, body)),
    putFile: async (key, path) => void (await put(key, readFileSync(path))),
    get: async (key) => new Uint8Array(await (await get(key)).arrayBuffer()),
    remove: async (key) => void (await remove(key)),
    async keys() {
      const keys: string[] = [];
      for (let next: string | undefined; ; ) {
        const found = await page(next);
        keys.push(...found.keys);
        next = found.next;
        if (next === undefined) {
          return keys;
        }
      }
    },
  };
}

async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(url, init);
  if (!response.ok) {
    throw new Error(`${init.method ?? "GET"} ${url.split("?")[0]}: ${response.status} ${await response.text()}`);
  }
  return response;
}

async function startProgram(program: string, args: readonly string[], port: number): Promise<() => Promise<void>> {
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-store-"));
  const log = join(scratch, "log");
  const out = openSync(log, "a");
  const child: ChildProcess = spawn(program, args, { cwd: scratch, stdio: ["ignore", out, out] });
  const last = (): void => void child.kill("SIGKILL"); // should this process end before the tests do
  process.on("exit", last);
  await untilReady(child, port, log);
  return async () => {
    const exited = child.exitCode === null ? new Promise((done) => child.once("exit", done)) : undefined;
    child.kill("SIGKILL");
    await exited;
    process.off("exit", last);
    rmSync(scratch, { recursive: true, force: true });
  };
}
