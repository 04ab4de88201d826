import type { SourceColumn } from "../../columnar/types.js";
import type { Decoder, LegacyDates, ShardFooter, ShardSchema } from "../../formats/port.js";
import type { ListedShard } from "../../plan/compare.js";
import { partitionColumns } from "../../plan/partitions.js";
import type { PlannedShard } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import type { JobSpec } from "../../spec/job-spec.js";
import type { OpenShard, Source } from "../../storage/port.js";
import { count } from "../../report/report.js";
import { JobError } from "../../util/errors.js";
import { checkFreshness } from "./freshness.js";
import { laterInputHint } from "./input.js";
import { verifyShards } from "./verify.js";

/** Shards opened at once while footers are read, if that many files may be opened. */
const footerConcurrency = 256;

/** The columns of a shard, including those of its folder names. */
export interface SeenSchema {
  readonly shard: ListedShard;
  /** The shard, as messages name it. */
  readonly name: string;
  readonly columns: readonly SourceColumn[];
  readonly legacyDates: readonly LegacyDates[];
}

export function seenSchema(
  spec: JobSpec,
  { shard, name }: { shard: ListedShard; name: string },
  { schema }: ShardFooter,
): SeenSchema {
  const fromFolders = partitionColumns(shard.uri, schema.columns, spec.input.partitions);
  return { shard, name, ...schema, columns: [...schema.columns, ...fromFolders] };
}

/** The content of the footers of all shards. */
export interface SeenShards {
  readonly shards: readonly PlannedShard[];
  /** The rows of all shards together. */
  readonly rows: number;
  /** The schemas that differ. */
  readonly schemas: readonly SeenSchema[];
  /** Encrypted columns, each with the first shard that has it encrypted. */
  readonly encrypted: ReadonlyMap<string, string>;
  /** NULLs that the shards' statistics state, by column; columns without any are left out. */
  readonly nulls: ReadonlyMap<string, number>;
}

/**
 * Whether planning may reject the input, for too few or too old rows. The input is then read before the model is
 * loaded.
 */
export function mayNotBeReady({ spec: { input } }: JobContext, listed: readonly ListedShard[]): boolean {
  return listed.length === 0 || input.wait !== undefined || input.min_rows > 1 || input.freshness !== undefined;
}

/**
 * Reads the footers of all shards, and for `input.freshness` one column.
 * @throws JobError INPUT_NOT_READY if there are fewer rows than `input.min_rows`, the rows are too old, or a shard
 * changes while it is read
 */
export async function readShards(
  context: JobContext,
  decoder: Decoder,
  listed: readonly ListedShard[],
): Promise<SeenShards> {
  const { name, input } = context.spec;
  const path = input.path.join(", ");
  if (listed.length === 0) {
    throw new JobError("INPUT_NOT_READY", `planning ${name}: no file matches ${path}`, { hint: laterInputHint });
  }
  const seen = await readFooters(context, decoder, listed).catch((error: unknown) => {
    throw inputChangedWhilePlanning(error, context.spec);
  });
  if (seen.rows < input.min_rows) {
    const found = `${path} has ${count(seen.rows, "row")} in ${count(listed.length, "file")}, input.min_rows is ${input.min_rows}`;
    throw new JobError("INPUT_NOT_READY", `planning ${name}: ${found}`, { hint: laterInputHint });
  }
  await checkFreshness(context, decoder, seen).catch((error: unknown) => {
    throw inputChangedWhilePlanning(error, context.spec);
  });
  return seen;
}

/**
 * Makes a shard that changes while it is planned a temporary error: nothing is planned yet that it could differ from.
 */
function inputChangedWhilePlanning(error: unknown, { name }: JobSpec): unknown {
  return error instanceof JobError && error.code === "INPUT_CHANGED"
    ? new JobError("INPUT_NOT_READY", `planning ${name}: the input changes while it is read: ${error.message}`, {
        hint: "run the same command again when the input is no longer written to; with input.ready, a run waits for a marker file that is written last",
        cause: error,
      })
    : error;
}

/** Opens shards. If one cannot be opened, none stays open. */
async function openAll(source: Pick<Source, "open">, shards: readonly ListedShard[]): Promise<OpenShard[]> {
  const opening = await Promise.allSettled(shards.map((shard) => source.open(shard)));
  const opened = opening.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  for (const one of opening) {
    if (one.status === "rejected") {
      await Promise.all(opened.map((shard) => shard[Symbol.asyncDispose]()));
      throw one.reason;
    }
  }
  return opened;
}

async function readFooters(context: JobContext, decoder: Decoder, listed: readonly ListedShard[]): Promise<SeenShards> {
  const shards: PlannedShard[] = [];
  const encrypted = new Map<string, string>();
  const nulls = new Map<string, number>();
  const verifying = context.spec.input.verify === "full" ? verifyShards(context, decoder) : undefined;
  /** Schemas by the columns of the file, then by the names of the folder columns: many shards share few. */
  const schemas = new Map<ShardSchema, Map<string, SeenSchema>>();
  const { spec, source, signal } = context;
  const concurrency = context.filesAtOnce(footerConcurrency);
  for (let start = 0; start < listed.length; start += concurrency) {
    signal.throwIfAborted();
    const group = listed.slice(start, start + concurrency);
    const opened = await openAll(source, group);
    try {
      let index = 0;
      for await (const footer of decoder.footers(opened)) {
        const shard = group[index];
        const file = opened[index];
        index += 1;
        if (shard !== undefined && file !== undefined) {
          const sha256 = await verifying?.shard(file);
          await file.check();
          const { uri, sizeBytes, fingerprint } = shard;
          const planned = { uri, sizeBytes, fingerprint, rows: footer.rows };
          shards.push(sha256 === undefined ? planned : { ...planned, sha256 });
          for (const column of footer.encrypted) {
            encrypted.set(column, encrypted.get(column) ?? file.name);
          }
          for (const [column, stated] of footer.nulls) {
            nulls.set(column, (nulls.get(column) ?? 0) + stated);
          }
          const seen = seenSchema(spec, { shard, name: file.name }, footer);
          const same = schemas.get(footer.schema) ?? new Map<string, SeenSchema>();
          const folders = seen.columns.slice(footer.schema.columns.length).map(({ name }) => name);
          schemas.set(footer.schema, same.set(folders.join("/"), same.get(folders.join("/")) ?? seen));
        }
      }
      if (index !== group.length) {
        throw new Error(`${index} footers came of ${group.length} shards`); // else rows would be left out
      }
    } finally {
      await Promise.all(opened.map((shard) => shard[Symbol.asyncDispose]()));
    }
  }
  verifying?.logSummary();
  const seen = [...schemas.values()].flatMap((same) => Array.from(same.values()));
  const rows = shards.reduce((sum, shard) => sum + shard.rows, 0);
  return { shards, rows, schemas: seen, encrypted, nulls };
}
