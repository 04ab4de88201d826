import type { Log } from "../flow/opened-job.js";
import type { After } from "../targets/after/after.js";
import { openRedis } from "../targets/after/redis.js";
import type { Tools } from "./attempt.js";
import type { RedisSpec } from "./jobfile/publish-spec.js";
import { secretFile } from "./jobfile/secrets.js";
import { keyedFilesOf } from "./duckdb.js";
import { readPem, readSecret } from "./reading.js";

export interface AfterTools extends Tools {
  readonly where: (path: readonly string[]) => string;
  readonly job: string;
  readonly hourParam: string | undefined;
  readonly log: Log;
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Opens Redis on this machine. Nothing is read or asked before it is used. */
export function openRedisOf(spec: RedisSpec, tools: AfterTools): After {
  const { folder, where, log } = tools;
  const { url, password, ca } = spec;
  const key = (name: string): string => where(["publish", "redis", name]);
  return openRedis({
    ...tools,
    spec,
    place: secretFile(url) === undefined ? new URL(url).host : key("url"),
    login: async () => ({
      url: await readSecret(url, { folder, key: key("url") }),
      password: password && (await readSecret(password, { folder, key: key("password") })),
      ca: ca && (await readPem(ca, { folder, key: key("ca") })),
    }),
    async *read(run, named) {
      yield* keyedFilesOf(tools, await run.read([...spec.key, ...spec.columns]), named);
    },
    info: (message) => log.info(message),
  });
}
