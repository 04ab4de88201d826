import { randomUUID } from "node:crypto";
import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";
import { awaitedLater } from "../../util/promises.js";
import { sha256Of } from "../../util/sha256.js";
import {
  type AnswerStore,
  type KeptAnswer,
  type LookAtPaid,
  type Price,
  type Spent,
  sumOfSpent,
  type TokenCount,
} from "../port.js";
import { keptText, type ModelAnswer, type PaidAnswer, parseKept } from "./task.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
interface KeptAnswers extends Disposable {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  /** What a budget must count of earlier attempts: that, and the most that requests may have taken whose answers were lost. */
  readonly before: { readonly all: TokenCount; readonly byWorker: TokenCount };
  find(request: string): ModelAnswer | undefined;
  /** Adds an answer, whose write begins `flushMs` later, or when the write before has ended. */
  add(request: string, answer: ModelAnswer): void;
  /** Adds a request whose answer was lost, for the budgets of later attempts. @param worst the most that it may have taken */
  addLost(worst: TokenCount): void;
  /**
   * Counts all answers that are kept now. undefined: no answers are kept
   * @param own what this attempt paid for. If fewer are kept, another worker has finished the run and removed them
   */
  recount(own: Spent, onAnswer: (answer: ModelAnswer) => void): Promise<Spent | undefined>;
  /** Takes over what is kept. @param worker index of this worker; @param onAnswer called with each answer */
  begin(store: AnswerStore, worker: number, onAnswer: (answer: ModelAnswer) => void): Promise<void>;
  /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
  keep(): Promise<void>;
  /** @throws the error of the store if answers could not be kept */
  requireKept(): void;
}

/** @param flushMs how long an answer waits before it is written; undefined: the store says it */
export function createKeptAnswers(flushMs?: number): KeptAnswers {
  const texts = createAnswerTexts();
  const earlier = nothingSpent();
  const before = { all: nothingSpent(), byWorker: nothingSpent() };
  /** undefined: a pipe keeps none. */
  let store: AnswerStore | undefined;
  let workerIndex = 0;
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let lastWrite = Promise.resolve();
  /** Whether `lastWrite` has not begun. It writes all that is pending then: slow writes become large, not many. */
  let isQueued = false;
  let failure: { readonly error: unknown } | undefined;

  const write = async (to: AnswerStore): Promise<void> => {
    isQueued = false;
    const records = pending;
    pending = [];
    await (records.length === 0 ? undefined : to.keep(records));
  };

  const keep = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const to = store;
    if (to !== undefined && !isQueued) {
      isQueued = true;
      lastWrite = lastWrite.then(() => write(to)); // calls never overlap; after a failure each fails
      lastWrite.catch((error: unknown) => {
        failure ??= { error };
        pending = []; // no write follows
      });
    }
    return lastWrite;
  };

  const addRecord = (request: string, answer: string): void => {
    if (store !== undefined) {
      pending.push({ request, answer });
      timer ??= setTimeout(() => void awaitedLater(keep()), flushMs ?? store.pauseMs);
    }
  };

  return {
    earlier,
    before,
    keep,
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
    find(request) {
      const text = texts.get(request);
      return text === undefined ? undefined : parseKept(text);
    },
    add(request, answer) {
      const text = keptText(answer, workerIndex);
      texts.set(request, text);
      addRecord(request, text);
    },
    addLost(tokens) {
      addRecord(keyOfNoRow(), keptText({ ...emptyAnswer, finish: lostFinish, tokens }, workerIndex));
    },
    async recount(own, onAnswer) {
      await keep();
      if (store === undefined) {
        return undefined;
      }
      const kept = nothingSpent();
      for await (const { answer } of readKept(store.read())) {
        addAnswer(kept, answer);
        onAnswer(answer);
      }
      const known = sumOfSpent(own, earlier);
      return kept.answers < known.answers ? known : kept;
    },
    async begin(from, worker, onAnswer) {
      workerIndex = worker;
      for await (const { answer, request, text } of readKept(from.read())) {
        addAnswer(earlier, answer);
        addTokens(before.all, answer);
        addTokens(answer.worker === worker ? before.byWorker : nothingSpent(), answer);
        onAnswer(answer);
        texts.set(request, text);
      }
      store = from;
    },
    [Symbol.dispose]: () => texts[Symbol.dispose](),
  };
}

/** Adds up the answers that a run has kept. */
export function lookAtRun(price: Price | undefined): LookAtPaid {
  return async (kept) => {
    const sum = nothingSpent();
    for await (const { answer } of readKept(kept)) {
      addAnswer(sum, answer);
    }
    return { kept: sum, price };
  };
}

async function* readKept(
  kept: AsyncIterable<KeptAnswer>,
): AsyncGenerator<{ readonly request: string; readonly text: string; readonly answer: PaidAnswer }> {
  for await (const { request, answer: text } of kept) {
    const answer = parseKept(text);
    if (answer !== undefined) {
      yield { request, text, answer };
    }
  }
}

type Sum = { -readonly [K in keyof Spent]: Spent[K] };

/** No answers yet. */
export function nothingSpent(): Sum {
  return { answers: 0, prompt: 0, cached: 0, completion: 0 };
}

/** An answer that says nothing. */
export const emptyAnswer: ModelAnswer = {
  content: undefined,
  embedding: undefined,
  finish: null,
  isRefusal: false,
  model: undefined,
  tokens: undefined,
};

/** In the place of the reason why an answer ended: it never came. */
const lostFinish = "lost";

/** A key of the journal that no request of a row has. */
export function keyOfNoRow(): string {
  return sha256Of(`no row ${randomUUID()}`);
}

/** Adds an answer to a sum, unless it was lost. */
export function addAnswer(sum: Sum, answer: Pick<ModelAnswer, "tokens" | "finish">): void {
  if (answer.finish !== lostFinish) {
    sum.answers += 1;
    addTokens(sum, answer);
  }
}

function addTokens(sum: Sum, { tokens }: Pick<ModelAnswer, "tokens">): void {
  sum.prompt += tokens?.prompt ?? 0;
  sum.cached += tokens?.cached ?? 0;
  sum.completion += tokens?.completion ?? 0;
}

/** Texts by the hex SHA-256 of requests. A few are held in memory, many in a temporary file. */
interface AnswerTexts extends Disposable {
  get(request: string): string | undefined;
  /** A later text for a request replaces an earlier one. */
  set(request: string, text: string): void;
}

/** Bytes of texts in memory before all of them go to a file. */
const inMemoryBytes = 16 * 1024 ** 2;
/** Bytes that an entry takes besides its text. */
const entryBytes = 300;

/** @throws JobError DISK, from `set` and `get`, if the folder for temporary files is full or fails @public so that tests hold few bytes in memory */
export function createAnswerTexts(memoryBytes = inMemoryBytes): AnswerTexts {
  const held = new Map<string, Buffer>();
  let bytes = 0;
  let file: TextFile | undefined;
  return {
    get(request) {
      const text = held.get(request) ?? (file && onDisk(() => file?.read(request)));
      return text?.toString("utf8");
    },
    set(request, text) {
      const encoded = Buffer.from(text, "utf8");
      if (file !== undefined) {
        onDisk(() => file?.write(request, encoded));
        return;
      }
      held.set(request, encoded);
      bytes += encoded.length + entryBytes;
      if (bytes > memoryBytes) {
        file = onDisk(openTextFile);
        for (const [one, its] of held) {
          onDisk(() => file?.write(one, its));
        }
        held.clear();
      }
    },
    [Symbol.dispose]() {
      file?.close();
      file = undefined;
      held.clear();
    },
  };
}

interface TextFile {
  read(request: string): Buffer | undefined;
  write(request: string, text: Buffer): void;
  close(): void;
}

const digestBytes = 32;
/** A record: the digest, the length of the text, the text. */
const headBytes = digestBytes + 4;

function openTextFile(): TextFile {
  const [texts, pages] = [openNameless("answers"), openNameless("index")];
  const index = createDigestIndex(pages);
  let end = 0;
  return {
    read(request) {
      const digest = Buffer.from(request, "hex");
      let found: Buffer | undefined;
      for (const place of index.find(digest)) {
        const head = readAt(texts, place, headBytes);
        if (head.compare(digest, 0, digestBytes, 0, digestBytes) === 0) {
          found = readAt(texts, place + headBytes, head.readUInt32LE(digestBytes)); // the last one holds
        }
      }
      return found;
    },
    write(request, text) {
      const record = Buffer.concat([Buffer.from(request, "hex"), Buffer.alloc(4), text]);
      record.writeUInt32LE(text.length, digestBytes);
      writeAllSync(texts, record, end);
      index.add(record, end);
      end += record.length;
    },
    close() {
      closeSync(texts);
      closeSync(pages);
    },
  };
}

/** Opens a file without a name: it disappears when the process ends, also by SIGKILL, and no other process can open it. */
function openNameless(use: string): number {
  const path = join(tmpdir(), `infer-batch-${use}-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  unlinkSync(path);
  return file;
}

function readAt(file: number, place: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  for (let read = 0; read < bytes; ) {
    const count = readSync(file, buffer, read, bytes - read, place + read);
    if (count === 0) {
      throw new Error(`${bytes - read} bytes of an answer are not there`);
    }
    read += count;
  }
  return buffer;
}

function onDisk<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (errnoOf(error) === undefined) {
      throw error;
    }
    throw new JobError("DISK", `holding answers in a temporary file in ${tmpdir()}: ${messageOf(error)}`, {
      hint: "make room there, or name another folder with TMPDIR, and run the same command: answers that were kept are not paid for again",
      cause: error,
    });
  }
}

/** Places of digests in a file. Memory holds four bytes for about 180 digests. */
interface DigestIndex {
  /** Places whose digests begin with the same eight bytes: the caller compares the rest. */
  find(digest: Buffer): readonly number[];
  add(digest: Buffer, place: number): void;
}

const pageBytes = 4096;
/** Of a page: how many digests it has, and how many bits of their hash these share. */
const headerBytes = 8;
const prefixBytes = 8;
const slotBytes = 16;
const slotsPerPage = Math.floor((pageBytes - headerBytes) / slotBytes);

/**
 * Extendible hashing (Fagin and others, 1979): a page that is full is divided by one more bit of the hash, so that adding
 * never stops to write the whole index again.
 * @param file an empty file, opened to be read and written
 */
function createDigestIndex(file: number): DigestIndex {
  /** The page for each value of the last `depth` bits of a hash. */
  let directory = new Uint32Array(1);
  let [depth, pages] = [0, 1];

  const pageOf = (digest: Buffer): number => directory[hashOf(digest) & (2 ** depth - 1)] as number;

  const readPage = (number: number): Buffer => {
    const page = Buffer.allocUnsafe(pageBytes);
    if (readSync(file, page, 0, pageBytes, number * pageBytes) !== pageBytes) {
      throw new Error(`page ${number} of the index of answers is not there`);
    }
    return page;
  };

  const writePage = (number: number, page: Buffer): void => writeAllSync(file, page, number * pageBytes);

  /** Divides a full page by the next bit of the hash. */
  const divide = (number: number, full: Buffer): void => {
    const shared = full.readUInt32LE(4);
    if (shared === depth) {
      const doubled = new Uint32Array(directory.length * 2);
      doubled.set(directory);
      doubled.set(directory, directory.length);
      directory = doubled;
      depth += 1;
    }

    const added = pages;
    pages += 1;
    const [stays, goes] = [emptyPage(shared + 1), emptyPage(shared + 1)];
    const bit = 2 ** shared;
    for (let at = headerBytes; at < pageBytes - (slotBytes - 1); at += slotBytes) {
      addEntry((hashOf(full, at) & bit) === 0 ? stays : goes, full.subarray(at, at + slotBytes));
    }
    for (let index = 0; index < directory.length; index += 1) {
      if (directory[index] === number && (index & bit) !== 0) {
        directory[index] = added;
      }
    }
    writePage(number, stays);
    writePage(added, goes);
  };

  writePage(0, emptyPage(0));
  return {
    find(digest) {
      const page = readPage(pageOf(digest));
      const places: number[] = [];
      for (let at = headerBytes; at < endOf(page); at += slotBytes) {
        if (digest.compare(page, at, at + prefixBytes, 0, prefixBytes) === 0) {
          places.push(page.readUIntLE(at + prefixBytes, 6));
        }
      }
      return places;
    },
    add(digest, place) {
      const entry = Buffer.alloc(slotBytes);
      digest.copy(entry, 0, 0, prefixBytes);
      entry.writeUIntLE(place, prefixBytes, 6);
      for (;;) {
        const number = pageOf(digest);
        const page = readPage(number);
        if (addEntry(page, entry)) {
          writePage(number, page);
          return;
        }
        divide(number, page);
      }
    },
  };
}

/** Digests are as good as random. */
function hashOf(digest: Buffer, at = 0): number {
  return digest.readUInt32LE(at);
}

function emptyPage(sharedBits: number): Buffer {
  const page = Buffer.alloc(pageBytes);
  page.writeUInt32LE(sharedBits, 4);
  return page;
}

function endOf(page: Buffer): number {
  return headerBytes + page.readUInt32LE(0) * slotBytes;
}

function addEntry(page: Buffer, entry: Buffer): boolean {
  const count = page.readUInt32LE(0);
  if (count === slotsPerPage) {
    return false;
  }
  entry.copy(page, endOf(page));
  page.writeUInt32LE(count + 1, 0);
  return true;
}

/**
 * Writes all bytes at an offset of a file: on a disk that is full, the system may write a part of them first.
 * @public so that tests fill a disk
 */
export function writeAllSync(file: number, bytes: Uint8Array, at: number): void {
  for (let written = 0; written < bytes.length; ) {
    written += writeSync(file, bytes, written, bytes.length - written, at + written);
  }
}
