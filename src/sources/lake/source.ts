import { readFile } from "node:fs/promises";
import type { ListedShard } from "../../run/plan/compare.js";
import { JobError } from "../../base/errors.js";
import type { Source } from "../source.js";
import { type DeltaVersion, readDelta } from "./delta.js";
import { type IcebergVersion, newestMetadata, readIceberg } from "./iceberg.js";
import { type LakeReader, type LakeSnapshot, mostMetadataBytes } from "./snapshot.js";

/** What a table is, as its folder shows. */
export type LakeFormat = "delta" | "iceberg";

export interface LakeTools {
  /** What SQL makes of the rows of a Parquet file on this machine, one JSON text each. */
  readonly query: (
    path: string,
    sql: { readonly select: string; readonly where: string },
  ) => Promise<readonly string[]>;
  readonly unpack: LakeReader["unpack"];
}

/** Reads the metadata of a table through a source of files. */
export function lakeReader(source: Pick<Source, "list" | "open">, { query, unpack }: LakeTools): LakeReader {
  /** Files that a listing of their folder has found. */
  const known = new Map<string, ListedShard>();
  const find = async (name: string): Promise<ListedShard> => {
    const shard = known.get(name) ?? (await source.list([name])).shards[0];
    if (shard === undefined) {
      throw new JobError("FILE_MISSING", `reading ${name}: it is not there`, {
        hint: "the table's metadata names it: it was removed by hand, or by a clean-up while the table was read",
      });
    }
    return shard;
  };
  return {
    async list(folder) {
      const { shards } = await source.list([`${folder}/*`]);
      for (const shard of shards) {
        known.set(shard.uri, shard);
      }
      return shards.map(({ uri }) => uri.slice(folder.length + 1));
    },
    async read(name, range) {
      const shard = await find(name);
      if (shard.sizeBytes > mostMetadataBytes && range === undefined) {
        throw new JobError(
          "TOO_LARGE",
          `reading ${name}: it has ${shard.sizeBytes} bytes, more than a table's metadata should`,
        );
      }
      await using open = await source.open(shard);
      const { start, end } = range ?? { start: 0, end: shard.sizeBytes };
      await open.remote?.fetch([{ start, end }]);
      return (await readFile(open.path)).subarray(start, end);
    },
    async parquet(name, sql) {
      const shard = await find(name);
      await using open = await source.open(shard);
      await open.remote?.fetch([{ start: 0, end: shard.sizeBytes }]);
      return await query(open.path, sql);
    },
    unpack,
  };
}

/** Whether a folder is a table, and of which format. @throws JobError FILE_MISSING */
async function formatOf(source: Pick<Source, "listNames">, table: string): Promise<LakeFormat> {
  const [delta, iceberg] = await Promise.all([
    source.listNames(`${table}/_delta_log`),
    source.listNames(`${table}/metadata`),
  ]);
  if (delta.length === 0 && iceberg.length === 0) {
    throw new JobError("FILE_MISSING", `reading table ${table}: it has neither _delta_log nor metadata`, {
      hint: "name the folder of a Delta or Iceberg table",
    });
  }
  return delta.length > 0 ? "delta" : "iceberg";
}

/** The version of a table that a spec or a plan names. */
export interface LakeVersion {
  readonly format: LakeFormat;
  readonly snapshot: LakeSnapshot;
}

/**
 * Reads a table as it is, or was.
 * @param at as `input.at` has it: latest, a version or an id, a time in ISO 8601, a branch or a tag
 * @throws JobError FILE_MISSING, SPEC_INVALID, SHARD_CORRUPT
 */
export async function readLake(
  {
    source,
    reader,
    table,
  }: { readonly source: Pick<Source, "listNames">; readonly reader: LakeReader; readonly table: string },
  at: string,
): Promise<LakeVersion> {
  const format = await formatOf(source, table);
  if (format === "delta") {
    return { format, snapshot: await readDelta(reader, table, deltaVersion(table, at)) };
  }
  const metadata = await newestMetadata(reader, table);
  return {
    format,
    snapshot: await readIceberg(reader, { table, at: metadata, isCatalogs: false }, icebergVersion(at)),
  };
}

const instant = /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

/** A time in ms from 1970; undefined: the text is none. A day alone is its end, so that all of it counts. */
function timeOf(at: string): number | undefined {
  if (!instant.test(at)) {
    return undefined;
  }
  const isDay = at.length === 10;
  const ms = Date.parse(isDay ? `${at}T00:00:00Z` : at.replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : ms + (isDay ? 86_399_999 : 0);
}

function deltaVersion(table: string, at: string): DeltaVersion {
  const time = timeOf(at);
  if (at === "latest") {
    return "latest";
  }
  if (time !== undefined) {
    return { before: time };
  }
  if (!/^\d{1,15}$/.test(at)) {
    throw new JobError("SPEC_INVALID", `reading table ${table}: ${JSON.stringify(at)} is no version of a Delta table`, {
      hint: "write input.at as latest, a version such as 12, or a time such as 2026-11-20T06:00:00Z; Delta has no branches and tags",
    });
  }
  return { version: Number(at) };
}

function icebergVersion(at: string): IcebergVersion {
  const time = timeOf(at);
  return at === "latest"
    ? { ref: "main" }
    : time !== undefined
      ? { before: time }
      : /^\d{1,19}$/.test(at)
        ? { snapshot: at }
        : { ref: at };
}
