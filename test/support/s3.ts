import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CopyObjectCommand,
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutBucketVersioningCommand,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe } from "vitest";
import { credentials, findServer, freePort, s3Env, untilReady } from "./s3-server.mjs";

export interface StoreServer {
  readonly port: number;
  /** Its URL; `port`: of a proxy before it. */
  endpointAt(port?: number): string;
  /** What a process needs to use it. */
  env(): Readonly<Record<string, string>>;
  /** An empty bucket, with a name of its own. */
  createBucket(name?: string): Promise<Bucket>;
  stop(): Promise<void>;
}

export interface S3Server extends StoreServer {
  readonly endpoint: string;
  createBucket(name?: string): Promise<S3Bucket>;
  start(): Promise<void>;
  /** SIGKILL: as when the machine dies. */
  kill(signal?: NodeJS.Signals): Promise<void>;
}

/** A bucket, as a program that is not ours reads and writes it. */
export interface Bucket {
  readonly name: string;
  /** `s3://name` */
  readonly uri: string;
  endpointAt(port?: number): string;
  env(): Readonly<Record<string, string>>;
  put(key: string, body: Uint8Array | string): Promise<void>;
  putFile(key: string, path: string): Promise<void>;
  get(key: string): Promise<Uint8Array>;
  remove(key: string): Promise<void>;
  keys(): Promise<string[]>;
}

export interface S3Bucket extends Bucket {
  /** Copies an object, with its metadata. */
  copy(from: string, to: string): Promise<void>;
  keepVersions(): Promise<void>;
}

export { s3Env };

// Tests say so too often.
process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] = "true";

async function startServer(program: string): Promise<S3Server> {
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-s3-"));
  mkdirSync(join(scratch, "data"));
  mkdirSync(join(scratch, "versions"));
  const port = await freePort();
  const log = join(scratch, "log");
  let child: ChildProcess | undefined;
  let buckets = 0;
  const kill = async (signal: NodeJS.Signals = "SIGKILL"): Promise<void> => {
    const running = child;
    if (running === undefined || running.exitCode !== null || running.signalCode !== null) {
      return;
    }
    const exited = new Promise((done) => running.once("exit", done));
    running.kill(signal);
    await exited;
  };
  const start = async (): Promise<void> => {
    const out = openSync(log, "a");
    const store = ["posix", "--versioning-dir", join(scratch, "versions"), join(scratch, "data")];
    child = spawn(program, ["--port", `127.0.0.1:${port}`, "-q", "--keep-alive", ...store], {
      env: { ...process.env, ROOT_ACCESS_KEY: credentials.accessKeyId, ROOT_SECRET_KEY: credentials.secretAccessKey },
      stdio: ["ignore", out, out],
    });
    await untilReady(child, port, log);
  };
  await start();
  const last = (): void => void child?.kill("SIGKILL"); // should this process end before the tests do
  process.on("exit", last);
  const endpoint = `http://127.0.0.1:${port}`;
  const client = new S3Client({ region: "us-east-1", endpoint, forcePathStyle: true, credentials });
  return {
    port,
    endpoint,
    endpointAt: (at = port) => `http://127.0.0.1:${at}`,
    env: () => s3Env(port),
    async createBucket(name = `bucket-${buckets + 1}`) {
      buckets += 1;
      await client.send(new CreateBucketCommand({ Bucket: name }));
      return bucketOf(client, name, port);
    },
    start,
    kill,
    async stop() {
      client.destroy();
      await kill(); // a gentle end waits for connections that are kept alive
      process.off("exit", last);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}

function bucketOf(client: S3Client, name: string, port: number): S3Bucket {
  const put = async (key: string, body: Uint8Array | string): Promise<void> => {
    const bytes = Buffer.from(body);
    await client.send(new PutObjectCommand({ Bucket: name, Key: key, Body: bytes, ContentLength: bytes.length }));
  };
  return {
    name,
    uri: `s3://${name}`,
    endpointAt: (at = port) => `http://127.0.0.1:${at}`,
    env: () => s3Env(port),
    put,
    putFile: (key, path) => put(key, readFileSync(path)),
    async get(key) {
      const { Body } = await client.send(new GetObjectCommand({ Bucket: name, Key: key }));
      return (await Body?.transformToByteArray()) ?? new Uint8Array(0);
    },
    async remove(key) {
      await client.send(new DeleteObjectCommand({ Bucket: name, Key: key }));
    },
    async copy(from, to) {
      const CopySource = encodeURI(`${name}/${from}`);
      await client.send(new CopyObjectCommand({ Bucket: name, Key: to, CopySource }));
    },
    async keepVersions() {
      const VersioningConfiguration = { Status: "Enabled" as const };
      await client.send(new PutBucketVersioningCommand({ Bucket: name, VersioningConfiguration }));
    },
    async keys() {
      const keys: string[] = [];
      for (let token: string | undefined; ; ) {
        const page = await client.send(new ListObjectsV2Command({ Bucket: name, ContinuationToken: token }));
        keys.push(...(page.Contents ?? []).map(({ Key }) => Key ?? ""));
        token = page.NextContinuationToken;
        if (token === undefined) {
          return keys;
        }
      }
    },
  };
}

interface Describe {
  (name: string, tests: () => void): void;
  /** `%s` in the name is the first value of each case. */
  each<T>(cases: readonly (readonly [string, T])[]): (name: string, tests: (what: string, value: T) => void) => void;
}

function describing(one: (name: string, tests: () => void) => void): Describe {
  const each: Describe["each"] = (cases) => (name, tests) => {
    for (const [what, value] of cases) {
      one(name.replace("%s", what), () => {
        tests(what, value);
      });
    }
  };
  return Object.assign(one, { each });
}

export interface UsedServer<T> {
  readonly server: () => T;
  readonly describe: Describe;
}

export function useS3(): UsedServer<S3Server> {
  return useServer("S3", findServer(), startServer);
}

/** Starts a server for the tests of this file. Where none can be had, they are skipped, and say why. */
export function useServer<T extends { stop(): Promise<void> }>(
  what: string,
  found: { readonly program: string } | { readonly missing: string },
  start: (program: string) => Promise<T>,
): UsedServer<T> {
  if ("missing" in found) {
    console.warn(`SKIPPED, no ${what} server: ${found.missing}`);
    return {
      server() {
        throw new Error(found.missing);
      },
      describe: describing((name, tests) => {
        describe.skip(`${name} (skipped: ${found.missing})`, tests);
      }),
    };
  }
  // Not before there is a test that runs: of a file that skips all of them, no hook would stop it again.
  let server: T | undefined;
  beforeAll(async () => {
    server = await start(found.program);
  });
  afterAll(() => server?.stop());
  return {
    server() {
      if (server === undefined) {
        throw new Error("the server is started with the first test");
      }
      return server;
    },
    describe: describing((name, tests) => describe(name, tests)),
  };
}
