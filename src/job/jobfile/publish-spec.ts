import { z } from "../../base/zod.js";
import { secretFile } from "./secrets.js";
import { attempt, duration, name, type Refuse, secret, text } from "./values.js";

/** Where the rows of a run go, too, once it is published. A place each. */
export interface PublishSpec {
  readonly redis?: RedisSpec | undefined;
}

/** Redis, for readers of single keys. */
export interface RedisSpec {
  /** A secret. */
  readonly url: string;
  /** Replaces the one in the URL. A secret. */
  readonly password?: string | undefined;
  /** A file in PEM, relative to the spec. */
  readonly ca?: string | undefined;
  /** What its keys begin with. Default: the name of the job. */
  readonly prefix?: string | undefined;
  /** Output columns that name a row. */
  readonly key: readonly string[];
  /** Output columns that are looked up. */
  readonly columns: readonly string[];
  /** In seconds. */
  readonly ttl: number;
}

/** Whether a text is the URL of a server of Redis. */
export function isRedisUrl(given: string): boolean {
  return /^rediss?:\/\/[^\s/]+(\/\d*)?$/.test(given) && URL.canParse(given);
}

const redis = z.strictObject({
  url: z
    .string()
    .refine((given) => isRedisUrl(given) || secretFile(given) !== undefined, {
      error:
        "expected redis://user:password@host:port, or rediss:// for TLS, with %xx for characters that mean something in URLs, best from the environment: ${REDIS_URL}",
    })
    .meta(secret)
    .describe("redis://user:password@host:port, or rediss:// for TLS; of a cluster, one of its servers."),
  password: text.optional().meta(secret).describe("Password, in place of one in the URL."),
  ca: text.optional().describe("Authorities of the server's certificate, in PEM. Default: those of Node."),
  prefix: text
    .regex(/^[^\s{}]{1,200}$/, "expected a text without blanks and braces")
    .optional()
    .describe(
      "What all keys begin with. Default: the name of the job. Where params other than dates tell runs apart, it must, too: churn-${region}.",
    ),
  key: z.array(name).min(1).describe("Output columns that name a row."),
  columns: z.array(name).min(1).describe("Output columns that readers look up."),
  ttl: duration
    .refine((seconds) => seconds > 0, "expected more than 0s")
    .describe("How long readers find a run that no later one follows, such as 2d."),
}) satisfies z.ZodType<RedisSpec>;

/** `publish` of a spec. */
export const publish = z.strictObject({ redis: redis.optional() }).meta(attempt) satisfies z.ZodType<PublishSpec>;

/** Refuses a job whose runs have no rows of their own. */
export function checkPublish(
  { redis: spec }: PublishSpec,
  { since }: { readonly since?: unknown },
  { lineage, postgres }: { readonly lineage: boolean; readonly postgres?: { readonly mode: string } | undefined },
  refuse: Refuse,
): void {
  const at = ["publish", "redis"];
  if (spec !== undefined && since !== undefined) {
    refuse(at, "a run with input.since has new rows only: readers of the last run would miss the others");
  }
  if (spec !== undefined && postgres !== undefined && postgres.mode !== "replace" && !lineage) {
    const message = `mode ${postgres.mode} keeps the rows of all runs in one table: set output.lineage to true, which tells them apart`;
    refuse(at, message);
  }
}
