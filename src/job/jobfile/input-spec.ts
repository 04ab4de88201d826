import { z } from "../../base/zod.js";
import { catalog, type CatalogSpec, tableName } from "./catalog-spec.js";
import { kafka, type KafkaSpec, readableRows, topicUri } from "./kafka-spec.js";
import {
  isMlflowUri,
  isObjectUri,
  objectUriProblem,
  otherStoreProblem,
  parseObjectUri,
  type StoreScheme,
} from "./uri.js";
import { attempt, countFrom, duration, name, plan, type Refuse, showFound, text } from "./values.js";

/** How a place in a store is reached; credentials come from the environment, never from the spec. */
export interface StoreSpec {
  /** URL of a store that is not the one of AWS, Google or Azure. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  /** bucket in the path of the URL instead of its host; default: where there is an endpoint. */
  readonly path_style?: boolean | undefined;
  readonly request_payer?: "requester" | undefined;
  /** Limits in seconds. */
  readonly timeouts?: { readonly connect: number; readonly silence: number; readonly request: number } | undefined;
}

/** The stores whose paths take a key; all, if it is not named here. */
const storesOfKeys: Readonly<Record<string, readonly StoreScheme[]>> = {
  region: ["s3"],
  path_style: ["s3"],
  request_payer: ["s3"],
  sse: ["s3"],
};

export function needlessKeys(keys: readonly string[], paths: readonly string[]): { key: string; message: string }[] {
  const inStores = paths.filter((path) => isObjectUri(path) && objectUriProblem(path) === undefined);
  const used = new Set(inStores.map((path) => parseObjectUri(path).scheme));
  return keys.flatMap((key) => {
    const stores: readonly StoreScheme[] = storesOfKeys[key] ?? ["s3", "gs", "az"];
    const written = stores
      .map((scheme) => `${scheme}://`)
      .join(", ")
      .replace(/, (?=[^,]*$)/, " or ");
    return stores.some((scheme) => used.has(scheme))
      ? []
      : [{ key, message: `only a path that starts with ${written} can have this key` }];
  });
}

const endpointError = "expected a URL such as http://minio:9000, without user and password";

export const storeKeys = {
  endpoint: text
    .refine(isEndpoint, { error: endpointError })
    .optional()
    .meta(attempt)
    .describe(
      "For a store: its URL, if it is not the one of AWS, Google or Azure. Default for S3: AWS_ENDPOINT_URL_S3; for Google Cloud Storage: STORAGE_EMULATOR_HOST.",
    ),
  region: text
    .regex(/^[A-Za-z0-9-]+$/, "expected a region such as eu-central-1")
    .optional()
    .meta(attempt)
    .describe("For S3: region. Default: AWS_REGION, else the profile's region, else us-east-1."),
  path_style: z
    .boolean()
    .optional()
    .meta(attempt)
    .describe(
      "For S3: true puts the bucket into the path of the URL instead of its host name. Default: true if an endpoint is set.",
    ),
  request_payer: z
    .literal("requester")
    .optional()
    .meta(attempt)
    .describe("For S3: requester agrees to pay for the requests."),
  timeouts: z
    .strictObject({
      connect: countFrom(1, 3600).default(10).describe("Seconds to connect. Default: 10."),
      silence: countFrom(1, 3600)
        .default(20)
        .describe("Seconds without a byte in either direction before a request is retried. Default: 20."),
      request: countFrom(1, 86_400)
        .default(300)
        .describe("Seconds for one request, which fetches at most 8 MiB or sends a whole part. Default: 300."),
    })
    .optional()
    .meta(attempt)
    .describe("Time limits of requests to a store."),
};

function isEndpoint(given: string): boolean {
  try {
    const { protocol, username, password, search, hash } = new URL(given);
    return /^https?:$/.test(protocol) && [username, password, search, hash].every((part) => part === "");
  } catch {
    return false; // no URL: the schema says what is due
  }
}

/** Its type is unknown, because these checks also run on a spec with other problems. */
interface Given {
  readonly path: readonly (string | number)[];
  readonly text: unknown;
}

/** Checks the places of the input. @param golden the file of golden rows, which is read like the input */
export function checkInputPlaces(
  input: StoreSpec & {
    readonly path?: unknown;
    readonly table?: unknown;
    readonly catalog?: unknown;
    readonly ready?: unknown;
  },
  golden: unknown,
  refuse: Refuse,
): void {
  const listed = [input.path].flat();
  const all: readonly Given[] = [
    ...listed.map((given, index) => ({
      path: ["input", "path", ...(listed.length === 1 ? [] : [index])],
      text: given,
    })),
    { path: ["input", "table"], text: input.catalog === undefined ? input.table : undefined },
    { path: ["input", "ready"], text: input.ready },
    { path: ["checks", "golden", "path"], text: golden },
  ];
  // A catalog tells in which store the files of its table are: the keys may be for that.
  const unknown = input.catalog === undefined ? [] : [{ path: ["input", "table"], text: "s3://bucket/table" }];
  const isWrong =
    refuseEach(all, otherStoreProblem, refuse) || checkStore("input", input, [...all, ...unknown], refuse);
  if (!isWrong) {
    checkOneStore(all, input.endpoint !== undefined, refuse);
  }
}

/** Returns whether one is wrong. */
function refuseEach(paths: readonly Given[], problemOf: (path: string) => string | undefined, refuse: Refuse): boolean {
  let isWrong = false;
  for (const { path, text: given } of paths) {
    const message = typeof given === "string" ? problemOf(given) : undefined;
    if (message !== undefined) {
      refuse(path, message, showFound);
      isWrong = true;
    }
  }
  return isWrong;
}

/** One store at a time: the keys of the input, such as its endpoint, are those of all its paths. */
function checkOneStore(paths: readonly Given[], hasEndpoint: boolean, refuse: Refuse): void {
  const inStores = paths.flatMap(({ path, text: given }) => {
    if (typeof given !== "string" || !isObjectUri(given)) {
      return [];
    }
    const { scheme, bucket } = parseObjectUri(given);
    // An endpoint is that of one account.
    const store = scheme === "az" && hasEndpoint ? `az://${bucket.split("/")[0]}` : `${scheme}://`;
    return [{ path, store }];
  });
  const [first] = inStores;
  const other = inStores.find(({ store }) => store !== first?.store);
  if (first !== undefined && other !== undefined) {
    const message = `expected a path on a disk or in the same store as ${first.path.join(".")}, which starts with ${first.store}`;
    refuse(other.path, message, showFound);
  }
}

export function checkModelPlace(model: StoreSpec & { readonly path?: unknown }, refuse: Refuse): void {
  // MLflow's files may be in S3.
  if (typeof model.path !== "string" || !isMlflowUri(model.path)) {
    checkStore("model", model, [{ path: ["model", "path"], text: model.path }], refuse);
  }
}

/** Returns whether a path is wrong, or a key is one that none of the paths takes. */
function checkStore(key: string, place: StoreSpec, paths: readonly Given[], refuse: Refuse): boolean {
  if (refuseEach(paths, (path) => (isObjectUri(path) ? objectUriProblem(path) : undefined), refuse)) {
    return true;
  }
  const keys = Object.keys(storeKeys).filter((storeKey) => place[storeKey as keyof StoreSpec] !== undefined);
  const given = paths.flatMap(({ text: path }) => (typeof path === "string" ? [path] : []));
  const needless = needlessKeys(keys, given);
  for (const { key: storeKey, message } of needless) {
    refuse([key, storeKey], message, showFound);
  }
  return needless.length > 0;
}

export interface InputSpec extends StoreSpec {
  /** Files or globs, relative to the spec's folder, or in a store of objects; of a table its folder alone. */
  readonly path: readonly string[];
  /** The folder of a Delta or Iceberg table; undefined: the rows are those of the files. */
  readonly table?: string | undefined;
  /** The catalog that says where the table is: `table` is its name there. */
  readonly catalog?: CatalogSpec | undefined;
  /** The topic whose records are the rows; `table` is its URI. undefined: the rows are not those of a topic. */
  readonly kafka?: KafkaSpec | undefined;
  /** Which version of the table is read; undefined: there is no table. */
  readonly at?: string | undefined;
  /** Each run reads what came into the table or topic after the last published one; undefined: each run reads all. */
  readonly since?: "last_run" | undefined;
  /** What happens where rows after the last run were not only added; undefined: there is no `since`. */
  readonly on_rewrite?: OnRewrite | undefined;
  readonly format?: "parquet" | "arrow" | undefined;
  /** A file that marks the input as complete. While it is missing, a run ends with exit code 75. */
  readonly ready?: string | undefined;
  /** Seconds that an attempt waits for its input before exit code 75. It may differ between attempts. */
  readonly wait?: number | undefined;
  /** The fewest rows. With fewer, a run ends with exit code 75. */
  readonly min_rows: number;
  /** How old the input may be when a run is planned; undefined: any age. */
  readonly freshness?: FreshnessSpec | undefined;
  /** Types of values from Hive folder names (`dt=2026-01-31/`). Default: text. */
  readonly partitions: Readonly<Record<string, PartitionType>>;
  /** Computed columns: row-wise SQL over the shard's columns. */
  readonly columns: Readonly<Record<string, string>>;
  /** Row filter: SQL that is true for the rows to be scored. */
  readonly where?: string | undefined;
  /** How shards are checked. It may differ between attempts. */
  readonly verify: "pinned" | "full";
  /** The folder for bytes from a store until they are read, and its size. It may differ between attempts. */
  readonly spool: { readonly path?: string | undefined; readonly max_mb: number };
}

interface FreshnessSpec {
  readonly column: string;
  /** A limit in seconds. The run warns if the newest value is older. */
  readonly warn_after?: number | undefined;
  /** A limit in seconds. The run ends with exit code 75 if the newest value is older. */
  readonly error_after?: number | undefined;
}

export type OnRewrite = "fail" | "new_files";

export type PartitionType = "text" | "date" | "int64" | "float64" | "bool";

const freshness = z
  .strictObject({
    column: text.describe(
      "Date or timestamp column of the input, or of its folder names. Planning reads this column of all rows.",
    ),
    warn_after: duration
      .optional()
      .describe(
        "Warn if the newest value is older than this at the end of the logical date, or now if that is earlier.",
      ),
    error_after: duration
      .optional()
      .describe(
        "If the newest value is older, the input is not ready: the run waits as input.wait says, or ends with exit code 75.",
      ),
  })
  .refine(({ warn_after: warn, error_after: error }) => warn !== undefined || error !== undefined, {
    error: "expected warn_after, error_after or both",
  })
  .refine(({ warn_after: warn = 0, error_after: error = Number.POSITIVE_INFINITY }) => warn <= error, {
    error: "warn_after is longer than error_after, so it never applies",
  }) satisfies z.ZodType<FreshnessSpec>;

const atError =
  "expected latest, a version or snapshot, a time, a branch or a tag; write a number of more than 15 digits in quotes";

export const input = z.strictObject({
  path: z
    .union([text, z.array(text).min(1)], { error: "expected a path or a list of paths" })
    .transform((value) => (typeof value === "string" ? [value] : value))
    .optional()
    .meta(plan)
    .describe(
      "Parquet or Arrow files: a file, a folder, a glob, or a list of these, relative to the spec or in a store (s3://bucket/key, gs://bucket/key, az://account/container/key).",
    ),
  table: text
    .optional()
    .meta(plan)
    .describe(
      "In place of path: the folder of a Delta or Iceberg table, relative to the spec or in a store; or its name in input.catalog. See lake-tables.md.",
    ),
  catalog: catalog.optional(),
  kafka: kafka.optional().describe("In place of path: a topic of Kafka. See kafka.md."),
  at: z
    .union([text, z.number().refine((version) => Number.isSafeInteger(version) && version >= 0, { error: atError })], {
      error: atError,
    })
    .transform(String)
    .optional()
    .meta(plan)
    .describe(
      "Version of the table: latest, a version or snapshot, a time, a branch or a tag. It is pinned when the run is planned. Default: latest.",
    ),
  since: z
    .literal("last_run")
    .optional()
    .meta(plan)
    .describe(
      "last_run: a run reads what came into the table or topic after the run before it, and is published beside it.",
    ),
  on_rewrite: z
    .enum(["fail", "new_files"])
    .optional()
    .meta(plan)
    .describe(
      "With since, if rows were overwritten or deleted: fail ends the run with exit code 66; new_files reads all files that were written since. Default: fail.",
    ),
  format: z
    .enum(["parquet", "arrow"])
    .optional()
    .meta(plan)
    .describe("File format. Default: Arrow for names that end in .arrow, .arrows, .feather or .ipc, else Parquet."),
  ready: text
    .optional()
    .describe(
      "Marker file that is written when the input is complete. While it is missing, the run ends with exit code 75, or waits as input.wait says.",
    ),
  wait: duration
    .optional()
    .describe(
      "How long to wait for input.ready, for files that match input.path and for input.min_rows before exit code 75, such as 30s, 15m or 4h. It applies to input.freshness, too. Default: do not wait.",
    ),
  min_rows: countFrom(0, Number.MAX_SAFE_INTEGER)
    .default(1)
    .describe("Fewest rows that the input may have; fewer end the run with exit code 75."),
  freshness: freshness.optional().describe("How old the newest value of a column may be when a run is planned."),
  partitions: z
    .record(z.string(), z.enum(["text", "date", "int64", "float64", "bool"]))
    .default({})
    .meta(plan)
    .describe(
      "Types of the columns in Hive folder names, such as dt: date. Default: text. A column of the same name in the file takes precedence.",
    ),
  columns: z
    .record(name, text)
    .default({})
    .meta(plan)
    .describe(
      "Computed columns: DuckDB SQL over the columns of one row, such as amount_log: ln(1 + amount). ${name} stands for a param as a text value, without quotes.",
    ),
  where: text
    .optional()
    .meta(plan)
    .describe("Row filter: DuckDB SQL over the columns of one row. Rows for which it is not true are not scored."),
  verify: z
    .enum(["pinned", "full"])
    .default("pinned")
    .describe(
      "pinned checks that size and modification time (in a store: the ETag or generation) of each shard stay as planned. full also checks its sha256 and the page checksums.",
    ),
  ...storeKeys,
  spool: z
    .strictObject({
      path: text
        .optional()
        .describe(
          "For input in a store: folder for bytes that were fetched and not yet read, relative to the spec. Default: infer-batch-spool-<uid> in TMPDIR.",
        ),
      max_mb: countFrom(16, 1_048_576).default(1024).describe("Most MiB that the folder may hold at once."),
    })
    .prefault({})
    .describe("For input in a store: where fetched bytes are kept until they are read."),
}) satisfies z.ZodType<GivenInput>;

export interface GivenInput extends Omit<InputSpec, "path"> {
  readonly path?: readonly string[] | undefined;
}

/** Checks that an input names files or a table, and has no key of the other one. */
export function checkInput(given: GivenInput, refuse: Refuse): void {
  const { path, table, at, since, on_rewrite: onRewrite, wait, format, partitions } = given;
  if ([path, table, given.kafka].filter((source) => source !== undefined).length !== 1) {
    refuse(["input"], "expected exactly one of path, table and kafka");
  }
  if (given.kafka !== undefined) {
    checkTopic(given, refuse);
  }
  if (since === undefined && onRewrite !== undefined) {
    refuse(["input", "on_rewrite"], "only runs with input.since: last_run take note of what was rewritten");
  }
  if (since !== undefined && at !== undefined && at !== "latest") {
    refuse(["input", "at"], "a run with since reads up to the newest version; leave this key out");
  }
  if (since !== undefined && wait !== undefined) {
    refuse(["input", "wait"], "a run with since does not wait for rows: where nothing is new it ends with exit code 0");
  }
  if (table === undefined) {
    if (since !== undefined && given.kafka === undefined) {
      refuse(
        ["input", "since"],
        "only a table or a topic says what is new: name it with input.table or input.kafka in place of input.path",
      );
    }
    if (at !== undefined) {
      refuse(["input", "at"], "only a table has versions: name its folder with input.table in place of input.path");
    }
    if (given.catalog !== undefined) {
      refuse(["input", "catalog"], "a catalog has tables: name one with input.table in place of input.path");
    }
    return;
  }
  if (format !== undefined) {
    refuse(["input", "format"], "a table knows the format of its files; leave this key out");
  }
  if (Object.keys(partitions).length > 0) {
    refuse(["input", "partitions"], "a table knows the types of its columns; leave this key out");
  }
  if (given.catalog !== undefined && tableName(table) === undefined) {
    refuse(["input", "table"], "expected the name of a table in the catalog, such as db.features", showFound);
  } else if (given.catalog === undefined && /[*?[\]{}()\\]/.test(table)) {
    refuse(["input", "table"], "expected the folder of one table, without wildcards such as * and (");
  }
}

function checkTopic({ format, partitions, verify }: GivenInput, refuse: Refuse): void {
  if (format !== undefined) {
    refuse(["input", "format"], "records of a topic are in no file; leave this key out");
  }
  if (Object.keys(partitions).length > 0) {
    refuse(["input", "partitions"], "a topic has no folders; leave this key out");
  }
  if (verify === "full") {
    refuse(["input", "verify"], "the checksums of records are compared in any case; leave this key out");
  }
}

/** The input with its default keys; a table or a topic is the only path. */
export function inputOf({
  path = [],
  table: given,
  at = "latest",
  on_rewrite: onRewrite,
  ...others
}: GivenInput): InputSpec {
  const table = given === undefined || others.catalog !== undefined ? given : folderOf(given);
  const rewrites = others.since === undefined ? {} : { on_rewrite: onRewrite ?? "fail" };
  if (others.kafka !== undefined) {
    const uri = topicUri(others.kafka.topic);
    const where = others.where === undefined ? {} : { where: readableRows(others.where) };
    return { path: [uri], table: uri, at, ...others, ...rewrites, ...where };
  }
  return table === undefined ? { path, ...others } : { path: [table], table, at, ...others, ...rewrites };
}

/** A folder without a slash at its end, `.`, `..` and `//`, with which the names of its files begin. */
function folderOf(table: string): string {
  const [, store = "", path = ""] = /^(\w+:\/\/)?(.*)$/s.exec(table) ?? [];
  const parts: string[] = [];
  for (const [index, part] of path.split("/").entries()) {
    const isBack = part === ".." && !["", "..", undefined].includes(parts.at(-1));
    if (isBack) {
      parts.pop();
    } else if (part !== "." && (part !== "" || index === 0)) {
      parts.push(part);
    }
  }
  return `${store}${parts.join("/")}`;
}

/** SQL does not tell names by case. */
export function checkColumnNames({ columns }: Pick<InputSpec, "columns">, refuse: Refuse): void {
  const seen = new Set<string>();
  for (const column of Object.keys(columns)) {
    if (seen.has(column.toLowerCase())) {
      refuse(["input", "columns", column], `column \`${column}\` is computed twice (case does not count)`);
    }
    seen.add(column.toLowerCase());
  }
}
