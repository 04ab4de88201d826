import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { Log } from "../flow/opened-job.js";
import type { After } from "../targets/after/after.js";
import { openRedis } from "../targets/after/redis.js";
import type { Tools } from "./attempt.js";
import type { RedisSpec } from "./jobfile/publish-spec.js";
import { secretFile } from "./jobfile/secrets.js";
import { keyedFilesOf } from "./duckdb.js";
import { fileError, readSecret } from "./reading.js";

/* How Redis is opened on this machine. */

export interface AfterTools extends Tools {
  readonly where: (path: readonly string[]) => string;
  readonly job: string;
  readonly hourParam: string | undefined;
  readonly log: Log;
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Nothing is read or asked before it is used. */
export function openRedisOf(spec: RedisSpec, tools: AfterTools): After {
  const { folder, where, log, retry, signal, job, hourParam } = tools;
  const { key, columns, ttl: ttlSeconds, prefix = job } = spec;
  const secret = async (name: "url" | "password", value: string): Promise<string> =>
    await readSecret(value, { folder, key: where(["publish", "redis", name]) });
  return openRedis({
    prefix,
    key,
    columns,
    ttlSeconds,
    place: secretFile(spec.url) === undefined ? new URL(spec.url).host : where(["publish", "redis", "url"]),
    async settings() {
      const { url, password, ca } = spec;
      return {
        url: await secret("url", url),
        password: password === undefined ? undefined : await secret("password", password),
        ca:
          ca === undefined ? undefined : await readAuthorities(resolve(folder, ca), where(["publish", "redis", "ca"])),
      };
    },
    hourParam,
    async *read(run, named) {
      yield* keyedFilesOf(tools, await run.read(key), named);
    },
    retry,
    signal,
    info: (message) => {
      log.info(message);
    },
  });
}

async function readAuthorities(path: string, key: string): Promise<string> {
  return await readFile(path, "utf8").catch((error: unknown) => {
    throw fileError(`reading ${key}: ${path}`, error, "name a file in PEM that this user can read");
  });
}
