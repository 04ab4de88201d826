import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { type LakeTable, lakeTables } from "../../plan/lake-tables.js";
import type { ListedObject } from "../../s3/listing.js";
import type { S3Reader } from "./reader.js";
import { parseS3Uri, type S3Uri, s3UriText } from "../../spec/s3-uri.js";
import {
  compileGlob,
  folderUnread,
  type Glob,
  hasWildcards,
  isFolderLeftOut,
  literalStart,
  withoutFoldersOf,
} from "../glob.js";
import { type OutputFolder, outputHint } from "../output-folder.js";
import { joinListings } from "../join-listings.js";
import type { Listing, UnreadMatch } from "../port.js";
import { fingerprintOf } from "./shard.js";

/** Folders above a pattern that are looked at for a table's log; each costs a request or three. */
const rootsAbove = 12;

/** @throws JobError as `Source.list` */
export async function listPatterns(
  reader: S3Reader,
  patterns: readonly string[],
  output: OutputFolder | undefined,
): Promise<Listing> {
  const parts: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    parts.push(await expand(reader, pattern, output));
  }
  const listing = joinListings(parts);
  const shards = new Map(listing.shards.map((shard) => [shard.uri, shard])); // patterns may find the same ones
  const written = [...shards.keys()].find((uri) => output !== undefined && uri.startsWith(`${output.folder}/`));
  if (written !== undefined) {
    throw new JobError("SPEC_INVALID", `${written} lies in output.parquet.path`, { hint: outputHint });
  }
  return {
    ...listing,
    shards: [...shards.values()],
    unread: withoutFoldersOf(listing.unread, () => [...shards.keys()]),
  };
}

/** Names right below a folder, as the store tells them first; none where they may not be listed. */
export async function namesIn(reader: S3Reader, folder: string): Promise<string[]> {
  const { bucket, key } = parseS3Uri(folder);
  const names: string[] = [];
  try {
    for await (const object of reader.list(bucket, `${key}/`, { folder: true, firstPage: true })) {
      if (object.key !== `${key}/`) {
        names.push(object.key.slice(key.length + 1));
      }
    }
  } catch (error) {
    if (!(error instanceof JobError && error.code === "PERMISSION")) {
      throw error;
    }
  }
  return names;
}

/** `missing` is left out: a store has no folders. */
async function expand(reader: S3Reader, pattern: string, output: OutputFolder | undefined): Promise<Partial<Listing>> {
  const { bucket, key } = parseS3Uri(pattern);
  if (!hasWildcards(key)) {
    const facts = await reader.look({ bucket, key });
    const shard = facts === undefined ? undefined : shardOf({ bucket, key }, facts);
    return shard === undefined ? { absent: [pattern] } : { shards: [shard] };
  }
  const glob = compileGlob(key);
  refuseOutput(pattern, glob, output);
  const uriOf = (one: string): string => (one === "" ? `s3://${bucket}` : s3UriText({ bucket, key: one }));
  const matched: Matched = { objects: [], folders: new Set(), slashed: [], logged: new Set() };
  const take = takeInto(matched, glob);
  const start = literalStart(key);
  const inOneFolder = !key.slice(start.length).includes("/") && !key.includes("**");
  for await (const object of reader.list(bucket, start, { folder: inOneFolder })) {
    if (object.key === key) {
      return { shards: [shardOf({ bucket, key }, object)] }; // its own name holds a wildcard character
    }
    take(object);
  }
  const { objects } = matched;
  return {
    shards: objects.map((object) => shardOf({ bucket, key: object.key }, object)),
    unmatched: objects.length === 0 ? [pattern] : [],
    unread: unreadOf(matched, glob, uriOf).map(({ path, finding, hint }) => ({ pattern, path, finding, hint })),
    tableRoots: tableRootsOf(matched, start).map((root) => ({ pattern, folder: uriOf(root) })),
  };
}

/** What a pattern matches among the objects of a listing, and what it leaves out there. */
interface Matched {
  readonly objects: ListedObject[];
  /** Keys of folders, without the slash at their end. */
  readonly folders: Set<string>;
  /** Keys that match but for a slash at their end, of objects with bytes. */
  readonly slashed: string[];
  /** Keys of folders that seem to have a lakehouse table's log. */
  readonly logged: Set<string>;
}

/** Takes the objects of a listing one by one, folder by folder as the store sorts them. */
function takeInto(matched: Matched, glob: Glob): (object: ListedObject) => void {
  let folder = "";
  let log: ReturnType<typeof logAt>;
  return (object) => {
    const { key, sizeBytes } = object;
    const nameAt = key.lastIndexOf("/") + 1;
    if (key.slice(0, nameAt) !== folder) {
      folder = key.slice(0, nameAt);
      for (let at = folder.indexOf("/"); at >= 0; at = folder.indexOf("/", at + 1)) {
        matched.folders.add(folder.slice(0, at));
      }
      log = logAt(folder);
    }
    if (nameAt === key.length) {
      // Consoles make such objects, without bytes, to show a folder.
      if (sizeBytes > 0 && glob.matches(key.slice(0, -1))) {
        matched.slashed.push(key);
      }
    } else if (glob.matches(key)) {
      matched.objects.push(object);
    }
    if (log !== undefined && (nameAt === key.length || log.table.isLogFile(key.slice(nameAt)))) {
      matched.logged.add(log.root);
    }
  };
}

function unreadOf({ folders, slashed }: Matched, glob: Glob, uriOf: (key: string) => string): UnreadMatch[] {
  return [
    ...slashed.map((key) => ({
      path: uriOf(key),
      finding: "which has bytes under the name of a folder",
      hint: "copy it to a name without a slash at its end, or remove it",
    })),
    ...[...folders].filter((key) => isFolderLeftOut(glob, key)).map((key) => folderUnread(uriOf(key))),
  ];
}

/** Keys of folders. @param start what the keys that were listed begin with */
function tableRootsOf({ objects, logged }: Matched, start: string): string[] {
  if (objects.length === 0) {
    return [];
  }
  const holdsMatches = (root: string): boolean => objects.some(({ key }) => root === "" || key.startsWith(`${root}/`));
  // All that is below a whole folder was listed, logs too.
  const unlisted = foldersAbove(start).slice(start === "" || start.endsWith("/") ? 1 : 0);
  return [...[...logged].filter(holdsMatches), ...unlisted.slice(0, rootsAbove)];
}

/** The table whose log would lie in this folder, which ends in a slash. */
function logAt(folder: string): { readonly table: LakeTable; readonly root: string } | undefined {
  const table = lakeTables.find(({ log }) => folder === `${log}/` || folder.endsWith(`/${log}/`));
  return table === undefined ? undefined : { table, root: folder.slice(0, -table.log.length - 1).replace(/\/$/, "") };
}

/** The folder that keys with this beginning lie in, and those above it, the bucket (an empty text) last. */
function foldersAbove(start: string): string[] {
  const slash = start.lastIndexOf("/");
  return slash < 0 ? [""] : [start.slice(0, slash), ...foldersAbove(start.slice(0, slash))];
}

/** A pattern that will match what the run writes is refused before there is any. */
function refuseOutput(pattern: string, glob: Glob, output: OutputFolder | undefined): void {
  if (output === undefined) {
    return;
  }
  const to = parseS3Uri(`${output.folder}/${output.part}`);
  if (parseS3Uri(pattern).bucket === to.bucket && glob.matches(to.key)) {
    throw new JobError("SPEC_INVALID", `${pattern} matches what is written to output.parquet.path: ${s3UriText(to)}`, {
      hint: outputHint,
    });
  }
}

function shardOf(object: S3Uri, { etag, sizeBytes }: { etag: string; sizeBytes: number }): ListedShard {
  return { uri: s3UriText(object), sizeBytes, fingerprint: fingerprintOf(etag) };
}
