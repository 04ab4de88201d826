import { createHash } from "node:crypto";
import { open, unlink } from "node:fs/promises";
import type { ObjectName, StoredObject } from "./objects/protocol.js";
import { creationIdOf, type ObjectCalls, type ObjectStore, writeAtOffset } from "./objects/store.js";
import { parseObjectUri } from "../job/jobfile/uri.js";
import { JobError } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import { digestOfFile } from "../base/sha256.js";
import { type Spool, withSpoolErrors } from "../base/spool.js";
import { type Digest, digestOfText, type Entry, type Fence, type Store, takeBackIfLate } from "./store.js";

export interface ObjectsOptions {
  readonly objects: ObjectStore;
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
/** More than the attempts that can change one text at once. */
const triesLimit = 100;

/**
 * Opens objects as a store; names are `<scheme>://<bucket>/<key>`. A creation is one PUT under the condition that nothing
 * has the key: it is never called back.
 */
export function openStoreOfObjects({ objects, spool, writer, isDead }: ObjectsOptions): Store {
  let asked: Promise<boolean> | undefined;

  /** Asks once, but again if the store was away. */
  async function isExclusive({ scope }: Fence): Promise<boolean> {
    try {
      return await (asked ??= objects.honoursConditions(objectAt(`${scope}/${probeStart}${writer}`)));
    } catch (error) {
      asked = undefined;
      throw error;
    }
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

  async function fetchOne(name: string, path: string, what: "whole" | "footer"): Promise<void> {
    const object = await objects.head(objectAt(name));
    if (object === undefined) {
      throw changedWhileRead(name);
    }
    const { etag, sizeBytes } = object;
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

  async function* fetchGroups(
    names: Parameters<Store["fetch"]>[0],
    what: "whole" | "footer",
  ): AsyncGenerator<readonly string[]> {
    let group: string[] = [];
    for await (const name of names) {
      group.push(name);
      if (group.length === groupSizes[what]) {
        yield* fetched(group, what);
        group = [];
      }
    }
    if (group.length > 0) {
      yield* fetched(group, what);
    }
  }

  async function* fetched(names: readonly string[], what: "whole" | "footer"): AsyncGenerator<readonly string[]> {
    await spool.prepare();
    const files = names.map((name) => ({ name, path: spool.newPath() }));
    const paths = files.map(({ path }) => path);
    try {
      const outcomes = await Promise.allSettled(
        files.map(({ name, path }) => withSpoolErrors(spool, () => fetchOne(name, path, what))),
      );
      const failed = outcomes.find(({ status }) => status === "rejected");
      if (failed?.status === "rejected") {
        throw failed.reason;
      }
      yield paths;
    } finally {
      // The folder of the spool goes when the attempt ends.
      await Promise.all(paths.map((path) => unlink(path).catch(() => undefined)));
    }
  }

  async function isReplaced(
    object: ObjectName,
    text: string,
    { etag, fence }: { readonly etag: string | undefined; readonly fence: Fence },
  ): Promise<boolean> {
    const conditional = await isExclusive(fence);
    const isWritten =
      etag === undefined
        ? (await objects.create(object, { body: text, conditional })) !== undefined
        : (await objects.put(object, text, conditional ? etag : undefined)) === "written";
    if (isWritten) {
      await takeBackIfLate(fence, async () => {
        const now = await objects.readText(object);
        if (now?.text === text) {
          await objects.remove(object, now.etag);
        }
      });
    }
    return isWritten;
  }

  function until(signal: AbortSignal | undefined): ObjectCalls {
    return signal === undefined ? objects : objects.until(signal);
  }

  return {
    list,
    async stat(name, signal) {
      const object = await until(signal).head(objectAt(name));
      return (
        object && {
          sizeBytes: object.sizeBytes,
          version: object.etag,
          digest: () => digestOf(objects, name, object),
        }
      );
    },
    readText: async (name) => (await objects.readText(objectAt(name)))?.text,
    fetch: (names, what) => ({ folder: spool.folder, groups: fetchGroups(names, what) }),
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
        const id = await objects.create(final, { body: content, metadata, conditional });
        if (id === undefined) {
          return { outcome: "exists", ...facts };
        }
        await takeBackIfLate(fence, async () => {
          const now = await objects.head(final);
          if (now !== undefined && creationIdOf(now) === id) {
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
    async update(name, change, fence, signal) {
      const object = objectAt(name);
      const calls = until(signal);
      for (let tries = 0; tries < triesLimit; tries += 1) {
        await fence?.check();
        const there = await calls.readText(object);
        const next = change(there?.text);
        if (next === there?.text) {
          return;
        }
        if (next === undefined) {
          // A store that ignores the condition may remove what another finisher has published since: it publishes again.
          if ((await calls.remove(object, there?.etag)) === "removed") {
            return;
          }
        } else if (fence === undefined) {
          await calls.put(object, next);
          return;
        } else if (await isReplaced(object, next, { etag: there?.etag, fence })) {
          return;
        }
      }
      throw new Error(`${name} was written to by others again and again`);
    },
    async copy(from, to) {
      const isCopied = await objects.copy(objectAt(from), objectAt(to));
      return isCopied || (await objects.head(objectAt(to))) !== undefined ? "copied" : "missing";
    },
    async remove(folder, names) {
      if (names !== undefined) {
        return await removeAll(names.map((name) => `${folder}/${name}`));
      }
      const { bucket, key } = objectAt(folder);
      const keys: string[] = [];
      for await (const object of objects.list(bucket, `${key}/`)) {
        keys.push(object.key);
      }
      await mapBounded(keys, atOnce, (below) => objects.remove({ bucket, key: below }));
    },
  };
}

/** The folder may be the bucket itself. */
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
