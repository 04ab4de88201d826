import { z } from "../../base/zod.js";
import { isPlainUrl } from "./uri.js";
import { attempt, checking, name, plan, type Refuse, secret, text } from "./values.js";

/** A topic of Kafka. */
export interface KafkaSpec {
  /** `host:port` each. */
  readonly brokers: readonly string[];
  readonly topic: string;
  /** The fields of values, which are JSON objects, and the types of the columns that they become. */
  readonly columns: Readonly<Record<string, KafkaColumnType>>;
  /** Columns, and the headers whose texts they have. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly registry?: KafkaRegistrySpec | undefined;
  readonly group?: string | undefined;
  readonly tls?: true | KafkaTlsSpec | undefined;
  readonly sasl?: KafkaSaslSpec | undefined;
}

export type KafkaColumnType = "text" | "date" | "int64" | "float64" | "bool";

/** A registry of schemas, which speaks Confluent's protocol. */
export interface KafkaRegistrySpec {
  readonly url: string;
  readonly username?: string | undefined;
  /** A secret. */
  readonly password?: string | undefined;
  /** A secret: sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
}

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

const registry = z.strictObject({
  url: text
    .refine((given) => isPlainUrl(given), "expected a URL without user, password and query")
    .describe("URL of a schema registry. Values are then Avro or JSON, after the id of their schema."),
  username: text.optional().describe("User."),
  password: text.optional().meta(secret).describe("Password of the user."),
  token: text.optional().meta(secret).describe("Bearer token of requests, in place of user and password."),
}) satisfies z.ZodType<KafkaRegistrySpec>;

function checkLogin({ mechanism, username, password, token }: KafkaSaslSpec, refuse: Refuse): void {
  const isToken = mechanism === "oauthbearer";
  if (isToken ? token === undefined : username === undefined || password === undefined) {
    refuse([], isToken ? "expected token" : "expected username and password");
  }
}

const reserved = /^_(problem|key|timestamp|offset|partition)$/i;

const column = name.refine((given) => !reserved.test(given), "each topic has a column of this name");

function checkColumns({ columns, headers = {} }: KafkaSpec, refuse: Refuse): void {
  const names = new Set(Object.keys(columns).map((field) => field.toLowerCase()));
  for (const header of Object.keys(headers)) {
    if (names.has(header.toLowerCase())) {
      refuse(["headers", header], "columns has a column of this name");
    }
  }
}

/** What the columns of a topic's rows are made of. */
export type TopicFields = Pick<KafkaSpec, "columns" | "headers" | "registry">;

/** Columns of rows, and what each is of: when a run is continued, they must be the same. */
export function fieldTexts({ columns, headers = {}, registry: schemas }: TopicFields): Record<string, string> {
  const read = schemas === undefined ? "" : ", by a registry's schemas";
  const ofColumns = Object.entries(columns).map(([field, type]) => [field, `${type}${read}`] as const);
  const ofHeaders = Object.entries(headers).map(([field, header]) => [field, `header ${header}`] as const);
  return Object.fromEntries([...ofColumns, ...ofHeaders]);
}

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
      .record(column, z.enum(["text", "date", "int64", "float64", "bool"]))
      .meta(plan)
      .describe(
        "Fields of the values, which are JSON objects, and their types. There are also _key, _timestamp, _offset and _partition.",
      ),
    registry: registry.optional(),
    headers: z
      .record(column, text)
      .meta(plan)
      .optional()
      .describe("Columns, and the headers of records whose texts they have. Default: none."),
    group: text
      .optional()
      .describe("Consumer group whose offsets show monitors how far published runs have read. Runs do not read them."),
    tls: z
      .union([z.literal(true), tlsFiles])
      .optional()
      .describe("Encrypts connections: true, or files."),
    sasl: sasl.optional().describe("Login."),
  })
  .superRefine(checking(checkColumns))
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
