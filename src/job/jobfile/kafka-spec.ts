import { z } from "../../base/zod.js";
import { attempt, checking, name, plan, type Refuse, secret, text } from "./values.js";

/** A topic of Kafka. */
export interface KafkaSpec {
  /** `host:port` each. */
  readonly brokers: readonly string[];
  readonly topic: string;
  /** The fields of values, which are JSON objects, and the types of the columns that they become. */
  readonly columns: Readonly<Record<string, KafkaColumnType>>;
  readonly tls?: true | KafkaTlsSpec | undefined;
  readonly sasl?: KafkaSaslSpec | undefined;
}

export type KafkaColumnType = "text" | "date" | "int64" | "float64" | "bool";

/** Files in PEM, relative to the spec. */
interface KafkaTlsSpec {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

interface KafkaSaslSpec {
  readonly mechanism: "plain" | "scram-sha-256" | "scram-sha-512" | "oauthbearer";
  readonly username?: string | undefined;
  /** A secret. */
  readonly password?: string | undefined;
  /** A secret. */
  readonly token?: string | undefined;
}

const tlsFiles = z.strictObject({
  ca: text.optional().describe("Authorities, in PEM. Default: those of Node."),
  cert: text.optional().describe("Certificate of this client, in PEM."),
  key: text.optional().describe("Key of that certificate, in PEM."),
}) satisfies z.ZodType<KafkaTlsSpec>;

const sasl = z
  .strictObject({
    mechanism: z.enum(["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"]).describe("How the user logs in."),
    username: text.optional().describe("User."),
    password: text.optional().meta(secret).describe("Password of the user."),
    token: text.optional().meta(secret).describe("For oauthbearer: the token."),
  })
  .superRefine(checking(checkLogin)) satisfies z.ZodType<KafkaSaslSpec>;

function checkLogin({ mechanism, username, password, token }: KafkaSaslSpec, refuse: Refuse): void {
  const isToken = mechanism === "oauthbearer";
  if (isToken ? token === undefined : username === undefined || password === undefined) {
    refuse([], isToken ? "expected token" : "expected username and password");
  }
}

/** Names of columns that every topic has. */
const reserved = /^_(problem|key|timestamp|offset|partition)$/i;

/** `input.kafka` of a spec. */
export const kafka = z
  .strictObject({
    brokers: z
      .array(text.regex(/^([^\s@/]+:\d{1,5}|\$\{.+\})$/, "expected host:port"))
      .min(1)
      .describe("Brokers, as host:port. One that answers is enough."),
    topic: text
      .regex(/^([\w.-]{1,249}|\$\{.+\})$/, "expected the name of a topic")
      .meta(plan)
      .describe("Topic, read up to its last committed record when the run is planned."),
    columns: z
      .record(
        name.refine((column) => !reserved.test(column), "each topic has a column of this name"),
        z.enum(["text", "date", "int64", "float64", "bool"]),
      )
      .meta(plan)
      .describe(
        "Fields of the values, which are JSON objects, and their types. There are also _key, _timestamp, _offset and _partition.",
      ),
    tls: z
      .union([z.literal(true), tlsFiles])
      .optional()
      .describe("Encrypts connections: true, or files."),
    sasl: sasl.optional().describe("Login."),
  })
  .meta(attempt) satisfies z.ZodType<KafkaSpec>;

/** What `input.path` is for a topic. */
export function topicUri(topic: string): string {
  return `kafka:${topic}`;
}

/** The column that says what is wrong with a row; NULL: nothing; `leftOut`: it has no record, or one that deletes its key. */
export const problemColumn = "_problem";
export const leftOut = "";

/** SQL that is true for the rows which `where` keeps, and for those that cannot be read: they are bad rows. */
export function readableRows(where: string): string {
  return `CASE WHEN ${problemColumn} IS NULL THEN (${where}\n) ELSE true END`;
}
