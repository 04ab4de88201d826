import { createHash } from "node:crypto";
import { open, unlink } from "node:fs/promises";
import type { ObjectName, StoredObject } from "../objects/protocol.js";
import { creationIdOf, type ObjectCalls, type ObjectStore, writeAtOffset } from "../objects/store.js";
import { parseObjectUri } from "../spec/object-uri.js";
import { JobError } from "../util/errors.js";
import { mapBounded } from "../util/promises.js";
import { digestOfFile } from "../util/sha256.js";
import { type Spool, withSpoolErrors } from "../util/spool.js";
import {
  type Digest,
  digestOfText,
  type Entry,
  type Fence,
  type LocalFile,
  type Store,
  takeBackIfLate,
} from "./store.js";

export interface ObjectsOptions {
  readonly objects: ObjectStore;
  /** Holds files until they are sent or read. */
  readonly spool: Spool;
  /** Names this attempt: unique among all attempts on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
}

/** Enough for the footer of a part with few columns, with its label and the profile of two or three columns. */
const guessedFooterBytes = 64 * 1024;
/** The length of a Parquet footer, and the magic bytes PAR1. */
const footerEndBytes = 8;
/** Files that `fetch` offers at once. */
const groupSizes = { whole: 8, footer: 256 } as const;
/** Requests of one step under way at once. The client bounds those of all steps. */
const atOnce = 24;
/** Metadata key of an object's digest, so that whoever adopts it need not read it. */
const digestKey = "inferbatchsha256";
const probeStart = "probe.";

/**
 * Opens objects as a store; names are `<scheme>://<bucket>/<key>`. A creation is one PUT under the condition that nothing
 * has the key: it is never called back.
 */
export function openStoreOfObjects({ objects, spool, writer, isDead }: ObjectsOptions): Store {
  let logFiles = 0;
  let asked: Promise<boolean> | undefined;

  /** Asks whether the store honours `If-None-Match`: once, but again if it was away. */
  async function isExclusive({ scope }: Fence): Promise<boolean> {
    try {
      return await (asked ??= objects.honoursConditions(objectAt(`${scope}/${probeStart}${writer}`)));
    } catch (error) {
      asked = undefined;
      throw error;
    }
  }

  async function stored(name: string): Promise<StoredObject> {
    const object = await objects.head(objectAt(name));
    if (object === undefined) {
      throw changedWhileRead(name);
    }
    return object;
  }

  async function list(folder: string): Promise<readonly Entry[]> {
    const { bucket, key } = objectAt(folder);
    const prefix = key === "" ? "" : `${key}/`;
    const entries: Entry[] = [];
    for await (const { key: listed, sizeBytes } of objects.list(bucket, prefix, { folder: true })) {
      const isFolder = listed.endsWith("/");
      if (listed !== prefix) {
        // Some programs make folders as empty objects, which is one of the prefix itself.
        const name = listed.slice(prefix.length, isFolder ? -1 : undefined);
        entries.push({ name, sizeBytes: isFolder ? undefined : sizeBytes });
      }
    }
    return entries;
  }

  async function removeAll(names: readonly string[]): Promise<void> {
    await mapBounded(names, atOnce, (name) => objects.remove(objectAt(name)));
  }

  /** Fetches an object, or its footer into a sparse file. */
  async function fetchOne({ name, path }: LocalFile, what: "whole" | "footer"): Promise<void> {
    const { etag, sizeBytes } = await stored(name);
    await using file = await open(path, "wx+", 0o600);
    const fetchRange = async (start: number, end: number): Promise<void> => {
      if (start < end) {
        await objects
          .read(`reading ${name}`, { object: objectAt(name), etag, start, end }, writeAtOffset(file.fd))
          .catch((error: unknown) => {
            throw error instanceof JobError && error.code === "INPUT_CHANGED" ? changedWhileRead(name, error) : error;
          });
      }
    };
    if (what === "whole") {
      await fetchRange(0, sizeBytes);
      return;
    }
    await file.truncate(sizeBytes);
    const first = Math.max(0, sizeBytes - guessedFooterBytes);
    await fetchRange(first, sizeBytes);
    if (sizeBytes >= footerEndBytes) {
      const { buffer } = await file.read(Buffer.alloc(footerEndBytes), 0, footerEndBytes, sizeBytes - footerEndBytes);
      await fetchRange(Math.max(0, sizeBytes - footerEndBytes - buffer.readUInt32LE(0)), first);
    }
  }

  return {
    failure: "OBJECT_STORE",
    localFolder: spool.folder,
    logPauseMs: 2000,
    list,
    ...small(objects),
    async digest(name) {
      const object = await objects.head(objectAt(name));
      return object === undefined ? undefined : await digestOf(objects, name, object);
    },
    async *fetch(names, what) {
      const size = groupSizes[what];
      for (let start = 0; start < names.length; start += size) {
        await spool.prepare();
        const group = names.slice(start, start + size).map((name) => ({ name, path: spool.newPath() }));
        try {
          const fetched = await Promise.allSettled(
            group.map((file) => withSpoolErrors(spool, () => fetchOne(file, what))),
          );
          const failed = fetched.find(({ status }) => status === "rejected");
          if (failed?.status === "rejected") {
            throw failed.reason;
          }
          yield group;
        } finally {
          // The folder of the spool goes when the attempt ends.
          await Promise.all(group.map(({ path }) => unlink(path).catch(() => undefined)));
        }
      }
    },
    async workFile(_fence, _what, write) {
      await spool.prepare();
      const path = spool.newPath();
      await withSpoolErrors(spool, () => write(path));
      return path;
    },
    async prepare(fence) {
      const { scope, check } = fence;
      await check();
      const left = (await list(scope)).filter(({ name }) => {
        const owner = name.slice(probeStart.length);
        return owner !== writer && isDead(owner);
      });
      await removeAll(left.map(({ name }) => `${scope}/${name}`));
      return (await isExclusive(fence)) ? undefined : "the store does not honour conditional writes";
    },
    async create(name, body, fence) {
      const final = objectAt(name);
      const conditional = await isExclusive(fence);
      const put = async (facts: Digest, content: string | (Digest & { path: string })): ReturnType<Store["create"]> => {
        const metadata = { [digestKey]: facts.sha256 };
        const creation = await objects.create(final, { body: content, metadata, conditional });
        if (creation.kind === "exists") {
          return { outcome: "exists", ...facts };
        }
        await takeBackIfLate(fence, async () => {
          const now = await objects.head(final);
          if (now !== undefined && creationIdOf(now) === creation.id) {
            await objects.remove(final, now.etag);
          }
        });
        return { outcome: "created", ...facts };
      };
      if (typeof body === "string") {
        await fence.check();
        return await put(digestOfText(body), body);
      }
      await spool.prepare();
      const path = spool.newPath();
      try {
        return await withSpoolErrors(spool, async () => {
          await body(path);
          const facts = await digestOfFile(path);
          return await put(facts, { path, ...facts });
        });
      } finally {
        await unlink(path).catch(() => undefined);
      }
    },
    async replace(name, text, { version, fence }) {
      await fence.check();
      const object = objectAt(name);
      const conditional = await isExclusive(fence);
      const isWritten =
        version === undefined
          ? (await objects.create(object, { body: text, conditional })).kind === "created"
          : (await objects.put(object, text, conditional ? version : undefined)) === "written";
      if (!isWritten) {
        return "changed";
      }
      await takeBackIfLate(fence, async () => {
        const now = await objects.readText(object);
        if (now?.text === text) {
          await objects.remove(object, now.etag);
        }
      });
      return "written";
    },
    async append(log, text, fence) {
      await fence.check();
      logFiles += 1;
      const name = `${log}/${String(logFiles).padStart(6, "0")}.${writer}`;
      await objects.put(objectAt(name), text);
      await takeBackIfLate(fence, () => objects.remove(objectAt(name)));
    },
    async copy(from, to) {
      const isCopied = await objects.copy(objectAt(from), objectAt(to));
      return isCopied || (await objects.head(objectAt(to))) !== undefined ? "copied" : "missing";
    },
    remove: (folder, names) => removeAll(names.map((name) => `${folder}/${name}`)),
    // In a store that ignores `If-Match`, this may remove what another finisher has published since: it publishes again.
    withdraw: (name, { version }) => objects.remove(objectAt(name), version),
    async clear(folder) {
      const { bucket, key } = objectAt(folder);
      const keys: string[] = [];
      for await (const object of objects.list(bucket, `${key}/`)) {
        keys.push(object.key);
      }
      await mapBounded(keys, atOnce, (below) => objects.remove({ bucket, key: below }));
    },
    flush: () => Promise.resolve(),
    within: (signal) => small(objects.until(signal)),
  };
}

/** The calls on small texts. */
function small(objects: ObjectCalls): Pick<Store, "stat" | "readText" | "overwrite"> {
  return {
    async stat(name) {
      const object = await objects.head(objectAt(name));
      return object && { sizeBytes: object.sizeBytes, version: object.etag };
    },
    async readText(name, fence) {
      await fence?.check();
      const read = await objects.readText(objectAt(name));
      return read && { text: read.text, version: read.etag };
    },
    async overwrite(name, text) {
      await objects.put(objectAt(name), text);
    },
  };
}

/** The bucket and key of an object or folder; the folder may be the bucket itself. */
function objectAt(uri: string): ObjectName {
  const { bucket, key } = parseObjectUri(uri);
  return { bucket, key };
}

function changedWhileRead(name: string, cause?: unknown): JobError {
  return new JobError("OUTPUT_DAMAGED", `reading ${name}: it was removed or replaced while it was read`, {
    hint: "something else writes here; run the same command again",
    cause,
  });
}

/** The digest in the object's metadata; of an object that another program has put there, such as from a backup, its own. */
async function digestOf(
  objects: ObjectCalls,
  name: string,
  { etag, sizeBytes, metadata }: StoredObject,
): Promise<Digest> {
  const known = metadata[digestKey];
  if (known !== undefined || sizeBytes === 0) {
    return known === undefined ? digestOfText("") : { sizeBytes, sha256: known };
  }
  const hash = createHash("sha256");
  await objects.read(`reading ${name}`, { object: objectAt(name), etag, start: 0, end: sizeBytes }, (piece) => {
    hash.update(piece);
  });
  return { sizeBytes, sha256: hash.digest("hex") };
}
