import { open, unlink } from "node:fs/promises";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { JobError } from "../../../util/errors.js";
import { writeAtOffset } from "../../../s3/read-range.js";
import type { Spool } from "../../../util/spool.js";
import type { S3Store } from "../../../s3/store.js";
import {
  type CommittedPart,
  type InspectedParts,
  inspectParts,
  readProfiles,
  requireUndamaged,
} from "../common/parts.js";
import type { Opening } from "../../../publish/opening.js";
import type { StoredPlan } from "../../port.js";
import { objectAt, storedObject } from "./target-state.js";

/** Enough for the footer of a part with few columns, with its label and the profile of two or three columns. */
const guessedBytes = 64 * 1024;
/** The footer's length and the magic bytes PAR1. */
const endBytes = 8;
/** Footer files that exist at once. */
const partsAtOnce = 256;

export interface FooterTools {
  readonly store: S3Store;
  readonly spool: Spool;
  readonly duckdb: DuckDbAccess;
  readonly stored: StoredPlan;
}

/** Checks parts in S3 by their footers, which are fetched into sparse files. @throws JobError OUTPUT_DAMAGED */
export async function inspectInS3(
  tools: FooterTools,
  uris: ReadonlyMap<number, string>,
  how?: Opening,
): Promise<Map<number, CommittedPart>> {
  const parts: InspectedParts = { committed: new Map(), damaged: [] };
  await withFooters(tools, uris, async (paths, nameOf) => {
    const found = await inspectParts(tools.duckdb, tools.stored, paths, nameOf);
    for (const [span, part] of found.committed) {
      parts.committed.set(span, part);
    }
    parts.damaged.push(...found.damaged);
  });
  return requireUndamaged(tools.stored, parts, how);
}

/** Reads the profiles of parts in S3, given and returned by span; a part without one is left out. */
export async function profilesInS3(
  tools: Omit<FooterTools, "stored">,
  uris: ReadonlyMap<number, string>,
): Promise<Map<number, string>> {
  const profiles = new Map<number, string>();
  await withFooters(tools, uris, async (paths) => {
    for (const [span, text] of await readProfiles(tools.duckdb, paths)) {
      profiles.set(span, text);
    }
  });
  return profiles;
}

/** Fetches the footers of parts into sparse files, a group at a time, and runs `work` on each group. */
async function withFooters(
  tools: Omit<FooterTools, "stored">,
  uris: ReadonlyMap<number, string>,
  work: (paths: ReadonlyMap<number, string>, nameOf: (path: string) => string) => Promise<void>,
): Promise<void> {
  const all = [...uris];
  if (all.length > 0) {
    await tools.spool.prepare();
  }
  for (let start = 0; start < all.length; start += partsAtOnce) {
    const group = all
      .slice(start, start + partsAtOnce)
      .map(([span, uri]) => ({ span, uri, path: tools.spool.newPath() }));
    const uriOf = new Map(group.map(({ uri, path }) => [path, uri]));
    try {
      const fetching = await Promise.allSettled(group.map(({ uri, path }) => fetchFooter(tools.store, uri, path)));
      for (const one of fetching) {
        if (one.status === "rejected") {
          throw one.reason;
        }
      }
      await work(new Map(group.map(({ span, path }) => [span, path])), (path) => uriOf.get(path) ?? path);
    } finally {
      // The folder of the spool goes when the attempt ends.
      await Promise.all(group.map(({ path }) => unlink(path).catch(() => undefined)));
    }
  }
}

/** The number of parts on this machine at once. */
const wholePartsAtOnce = 8;

/**
 * Fetches whole parts into the spool, a group at a time. The files of a group are removed when the next one is
 * requested.
 */
export async function* fetchParts(
  { store, spool }: Pick<FooterTools, "store" | "spool">,
  uris: readonly string[],
): AsyncGenerator<readonly string[]> {
  await spool.prepare();
  for (let start = 0; start < uris.length; start += wholePartsAtOnce) {
    const group = uris.slice(start, start + wholePartsAtOnce).map((uri) => ({ uri, path: spool.newPath() }));
    try {
      for (const one of await Promise.allSettled(group.map(({ uri, path }) => fetchPart(store, uri, path)))) {
        if (one.status === "rejected") {
          throw one.reason;
        }
      }
      yield group.map(({ path }) => path);
    } finally {
      await Promise.all(group.map(({ path }) => unlink(path).catch(() => undefined)));
    }
  }
}

async function fetchPart(store: S3Store, uri: string, path: string): Promise<void> {
  const object = objectAt(uri);
  const { etag, sizeBytes } = await storedObject(store, uri);
  await using file = await open(path, "wx+", 0o600);
  await store
    .read(`reading ${uri}`, { object, etag, start: 0, end: sizeBytes }, writeAtOffset(file.fd))
    .catch((error: unknown) => {
      throw asDamage(error, uri);
    });
}

/** Makes a sparse file as large as the object, with the bytes of its footer. */
async function fetchFooter(store: S3Store, uri: string, path: string): Promise<void> {
  const object = objectAt(uri);
  const { etag, sizeBytes } = await storedObject(store, uri);
  await using file = await open(path, "wx+", 0o600);
  await file.truncate(sizeBytes);
  const fetch = async (start: number, end: number): Promise<void> => {
    if (start < end) {
      await store.read(`checking ${uri}`, { object, etag, start, end }, writeAtOffset(file.fd));
    }
  };
  const first = Math.max(0, sizeBytes - guessedBytes);
  await fetch(first, sizeBytes).catch((error: unknown) => {
    throw asDamage(error, uri);
  });
  if (sizeBytes >= endBytes) {
    const { buffer } = await file.read(Buffer.alloc(endBytes), 0, endBytes, sizeBytes - endBytes);
    await fetch(Math.max(0, sizeBytes - endBytes - buffer.readUInt32LE(0)), first);
  }
}

/** Reports a part that changed while it was read as damage of the output, not as a changed input. */
function asDamage(error: unknown, uri: string): unknown {
  return error instanceof JobError && error.code === "INPUT_CHANGED"
    ? new JobError("OUTPUT_DAMAGED", `checking ${uri}: it was removed or replaced while it was read`, {
        hint: "something else writes here; run the same command again",
        cause: error,
      })
    : error;
}
