import type { ListedObject } from "../../objects/protocol.js";
import type { ListedShard } from "../../plan/compare.js";
import { type LakeTable, lakeTables } from "../../plan/lake-tables.js";
import { type ObjectUri, objectUriText, parseObjectUri } from "../../spec/uri.js";
import { JobError } from "../../util/errors.js";
import type { Spool } from "../../util/spool.js";
import { joinListings } from "../combined-source.js";
import {
  compileGlob,
  folderGlob,
  type Glob,
  hasWildcards,
  isFolderName,
  literalPrefix,
  matchesFolderOnly,
  unreadableFolder,
  withoutFoldersOfFiles,
} from "../glob.js";
import { type Listing, type OutputFolder, outputHint, type Source, type UnreadableMatch } from "../port.js";
import type { ObjectReader } from "./reader.js";
import { createTailCache, fingerprintOf, openSpooledShard } from "./shard.js";

/** Files that are opened ahead: each costs one or two requests before its first row arrives. */
const filesAhead = 24;
/** Smaller windows cost more requests; larger ones delay the first rows. */
const windowBytes = 32 * 1024 * 1024;
/**
 * Bytes that are fetched ahead: more than a fast network has in flight, and few enough that the pages of files which
 * were read are reused, still in the cache, for the next ones.
 */
const aheadBytes = 256 * 1024 * 1024;
/** Memory for cached footers. */
const tailBytes = 64 * 1024 * 1024;

interface ObjectSourceOptions {
  readonly reader: ObjectReader;
  readonly spool: Spool;
  /** The job's own output, when it is in this store. */
  readonly output?: OutputFolder | undefined;
}

/** Opens a source of shards in a store of objects. Only the bytes that a decoder asks for are fetched. URIs are as `objectUriText` writes them. */
export function objectSource({ reader, spool, output }: ObjectSourceOptions): Source {
  const context = { reader, spool, tails: createTailCache(tailBytes) };
  return {
    readAhead: {
      files: filesAhead,
      coalescedFiles: 1, // each file has windows of its own
      windowBytes: Math.min(windowBytes, spool.maxBytes / 8),
      bytes: Math.min(spool.maxBytes / 2, aheadBytes),
    },
    async list(patterns) {
      await spool.prepare();
      return { ...(await listPatterns(reader, patterns, output)), folders: [spool.folder] };
    },
    listNames: async (folder) => await listNames(reader, folder),
    exists: async (uri) => (await reader.stat(parseObjectUri(uri))) !== undefined,
    open: (shard) => openSpooledShard(context, shard),
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

/** How many folders above a pattern are checked for a table's log; each costs one to three requests. */
const maxRootsAbove = 12;

/** Lists the shards that patterns name in a store of objects. @throws JobError as `Source.list` does */
async function listPatterns(
  reader: ObjectReader,
  patterns: readonly string[],
  output: OutputFolder | undefined,
): Promise<Listing> {
  const parts: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    parts.push(await expandPattern(reader, pattern, output));
  }
  const listing = joinListings(parts);
  const shards = new Map(listing.shards.map((shard) => [shard.uri, shard])); // several patterns may match a shard
  const written = [...shards.keys()].find((uri) => output !== undefined && uri.startsWith(`${output.folder}/`));
  if (written !== undefined) {
    throw new JobError("SPEC_INVALID", `${written} is in output.parquet.path`, { hint: outputHint });
  }
  return {
    ...listing,
    shards: [...shards.values()],
    unreadable: withoutFoldersOfFiles(listing.unreadable, () => [...shards.keys()]),
  };
}

/** Lists the names directly below a folder, of the store's first page; none when they may not be listed. */
async function listNames(reader: ObjectReader, folder: string): Promise<string[]> {
  const { bucket, key } = parseObjectUri(folder);
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

/** Lists what one pattern names. `missingFolders` is left out: a store has no folders. */
async function expandPattern(
  reader: ObjectReader,
  pattern: string,
  output: OutputFolder | undefined,
): Promise<Partial<Listing>> {
  const object = parseObjectUri(pattern);
  const { key } = object;
  if (hasWildcards(key)) {
    const start = literalPrefix(key);
    const inOneFolder = !key.slice(start.length).includes("/") && !key.includes("**");
    return await matchesOf(reader, { pattern, glob: compileGlob(key), start, inOneFolder }, output);
  }
  const stat = key.endsWith("/") ? undefined : await reader.stat(object);
  if (stat !== undefined) {
    return { shards: [shardOf(object, stat)] };
  }
  const start = key.endsWith("/") ? key : `${key}/`;
  const matches = await matchesOf(reader, { pattern, glob: folderGlob(start), start, inOneFolder: false }, output);
  return matches.shards?.length === 0 && !isFolderName(key) ? { missingFiles: [pattern] } : matches;
}

interface Search {
  readonly pattern: string;
  readonly glob: Glob;
  /** With which all matching keys start. */
  readonly start: string;
  readonly inOneFolder: boolean;
}

async function matchesOf(
  reader: ObjectReader,
  { pattern, glob, start, inOneFolder }: Search,
  output: OutputFolder | undefined,
): Promise<Partial<Listing>> {
  const { scheme, bucket, key } = parseObjectUri(pattern);
  rejectOutput(pattern, glob, output);
  const uriOf = (one: string): string => objectUriText({ scheme, bucket, key: one });
  const matched: Matched = { objects: [], folders: new Set(), slashed: [], logged: new Set() };
  const collect = createCollector(matched, glob);
  for await (const object of reader.list(bucket, start, { folder: inOneFolder })) {
    if (object.key === key && hasWildcards(key)) {
      return { shards: [shardOf({ scheme, bucket, key }, object)] }; // the key itself contains a wildcard
    }
    collect(object);
  }
  const { objects } = matched;
  return {
    shards: objects.map((object) => shardOf({ scheme, bucket, key: object.key }, object)),
    unmatched: objects.length === 0 ? [pattern] : [],
    unreadable: unreadableOf(matched, glob, uriOf).map(({ path, finding, hint }) => ({ pattern, path, finding, hint })),
    tableRoots: tableRootsOf(matched, start).map((root) => ({ pattern, folder: uriOf(root) })),
  };
}

/** What a pattern matches in a listing, and what it leaves out. */
interface Matched {
  readonly objects: ListedObject[];
  /** Keys of folders, without the slash at the end. */
  readonly folders: Set<string>;
  /** Keys of objects with bytes that would match without the slash at their end. */
  readonly slashed: string[];
  /** Keys of folders that seem to contain a lakehouse table's log. */
  readonly logged: Set<string>;
}

/** Makes a function that sorts listed objects into `matched`. Objects come in the store's order, folder by folder. */
function createCollector(matched: Matched, glob: Glob): (object: ListedObject) => void {
  let folder = "";
  let log: ReturnType<typeof tableLogAt>;
  return (object) => {
    const { key, sizeBytes } = object;
    const nameAt = key.lastIndexOf("/") + 1;
    if (key.slice(0, nameAt) !== folder) {
      folder = key.slice(0, nameAt);
      for (let at = folder.indexOf("/"); at >= 0; at = folder.indexOf("/", at + 1)) {
        matched.folders.add(folder.slice(0, at));
      }
      log = tableLogAt(folder);
    }
    if (nameAt === key.length) {
      // The AWS console creates such objects, without bytes, to show a folder.
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

function unreadableOf({ folders, slashed }: Matched, glob: Glob, uriOf: (key: string) => string): UnreadableMatch[] {
  return [
    ...slashed.map((key) => ({
      path: uriOf(key),
      finding: "which has bytes under the name of a folder",
      hint: "copy it to a name without a slash at its end, or remove it",
    })),
    ...[...folders].filter((key) => matchesFolderOnly(glob, key)).map((key) => unreadableFolder(uriOf(key))),
  ];
}

/** Keys of folders that may be the roots of tables. `start` is the prefix that was listed. */
function tableRootsOf({ objects, logged }: Matched, start: string): string[] {
  if (objects.length === 0) {
    return [];
  }
  const holdsMatches = (root: string): boolean => objects.some(({ key }) => root === "" || key.startsWith(`${root}/`));
  // A whole folder was listed with all logs below it, so only the folders above it are still to be checked.
  const unlisted = foldersAbove(start).slice(start === "" || start.endsWith("/") ? 1 : 0);
  return [...[...logged].filter(holdsMatches), ...unlisted.slice(0, maxRootsAbove)];
}

/** The table whose log `folder` would be, by its name. `folder` ends in a slash. */
function tableLogAt(folder: string): { readonly table: LakeTable; readonly root: string } | undefined {
  const table = lakeTables.find(({ log }) => folder === `${log}/` || folder.endsWith(`/${log}/`));
  return table === undefined ? undefined : { table, root: folder.slice(0, -table.log.length - 1).replace(/\/$/, "") };
}

/** The folder of the keys that start with `start`, and all folders above it; the last is the bucket, as "". */
function foldersAbove(start: string): string[] {
  const slash = start.lastIndexOf("/");
  return slash < 0 ? [""] : [start.slice(0, slash), ...foldersAbove(start.slice(0, slash))];
}

/** @throws JobError SPEC_INVALID when a pattern will match the parts that the run writes */
function rejectOutput(pattern: string, glob: Glob, output: OutputFolder | undefined): void {
  if (output === undefined) {
    return;
  }
  const to = parseObjectUri(`${output.folder}/${output.part}`);
  const from = parseObjectUri(pattern);
  if (from.scheme === to.scheme && from.bucket === to.bucket && glob.matches(to.key)) {
    throw new JobError(
      "SPEC_INVALID",
      `${pattern} matches what is written to output.parquet.path: ${objectUriText(to)}`,
      {
        hint: outputHint,
      },
    );
  }
}

function shardOf(object: ObjectUri, { etag, sizeBytes }: { etag: string; sizeBytes: number }): ListedShard {
  return { uri: objectUriText(object), sizeBytes, fingerprint: fingerprintOf(etag) };
}
