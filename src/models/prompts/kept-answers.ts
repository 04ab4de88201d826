import { randomUUID } from "node:crypto";
import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errnoOf, JobError, messageOf } from "../../base/errors.js";
import { awaitedLater } from "../../base/promises.js";
import { sha256Of } from "../../base/sha256.js";
import {
  type AnswerStore,
  type KeptAnswer,
  type LookAtPaid,
  type Price,
  type Spent,
  sumOfSpent,
  type TokenCount,
} from "../engine.js";
import { keptText, type ModelAnswer, type PaidAnswer, parseKept } from "./task.js";

/**
 * The answers of a run that this attempt knows: those that attempts have kept, and its own.
 * @param flushMs how long an answer waits before it is written; undefined: the store says it
 */
export function createKeptAnswers(flushMs?: number) {
  const texts = createAnswerTexts();
  const earlier: Sum = nothingSpent();
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
    /** Answers that were kept before this attempt, and what they took. */
    earlier,
    /** What a budget must count of earlier attempts: that, and the most that requests may have taken whose answers were lost. */
    before: before as { readonly all: TokenCount; readonly byWorker: TokenCount },
    /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
    keep,
    /** @throws the error of the store if answers could not be kept */
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
    find(request: string): ModelAnswer | undefined {
      const text = texts.get(request);
      return text === undefined ? undefined : parseKept(text);
    },
    /** Adds an answer, whose write begins `flushMs` later, or when the write before has ended. */
    add(request: string, answer: ModelAnswer) {
      const text = keptText(answer, workerIndex);
      texts.set(request, text);
      addRecord(request, text);
    },
    /** Adds a request whose answer was lost, for the budgets of later attempts. @param tokens the most that it may have taken */
    addLost(tokens: TokenCount) {
      addRecord(keyOfNoRow(), keptText({ ...emptyAnswer, finish: lostFinish, tokens }, workerIndex));
    },
    /**
     * Counts all answers that are kept now. undefined: no answers are kept
     * @param own what this attempt paid for. If fewer are kept, another worker has finished the run and removed them
     */
    async recount(own: Spent, onAnswer: (answer: ModelAnswer) => void): Promise<Spent | undefined> {
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
    /** Takes over what is kept. @param onAnswer called with each answer */
    async begin(from: AnswerStore, worker: number, onAnswer: (answer: ModelAnswer) => void) {
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

const digestBytes = 32;
/** A record: the digest, the length of the text, the text. */
const headBytes = digestBytes + 4;
/** Where records begin, in bytes: a place of 32 bits reaches 64 GiB. */
const alignment = 16;

/**
 * Texts by the hex SHA-256 of requests, in a temporary file; a table of their places is in memory, which takes 11 to 21
 * bytes a text. A later text for a request replaces an earlier one.
 * @throws JobError DISK, from `set` and `get`, if the folder for temporary files is full or fails
 * @public so that tests see it
 */
export function createAnswerTexts() {
  let opened: number | undefined;
  /** Two words a slot: the beginning of the digest, and the place of the record; 0: the slot is free. */
  let slots = new Uint32Array(2 * 4096);
  let [used, end] = [0, 1];
  const slotFrom = (hash: number, isMeant: (place: number) => boolean): number => {
    const mask = slots.length / 2 - 1;
    let slot = hash & mask;
    for (let place = slots[2 * slot + 1]; place !== 0; place = slots[2 * slot + 1]) {
      if (slots[2 * slot] === hash && isMeant(place as number)) {
        return slot;
      }
      slot = (slot + 1) & mask;
    }
    return slot;
  };
  const slotOf = (file: number, digest: Buffer): number =>
    slotFrom(digest.readUInt32LE(0), (place) => readAt(file, place * alignment, digestBytes).equals(digest));
  const grow = (): void => {
    const before = slots;
    slots = new Uint32Array(before.length * 2);
    for (let at = 0; at < before.length; at += 2) {
      if (before[at + 1] !== 0) {
        slots.set(before.subarray(at, at + 2), 2 * slotFrom(before[at] as number, () => false));
      }
    }
  };

  return {
    get(request: string): string | undefined {
      const file = opened;
      if (file === undefined) {
        return undefined;
      }
      return onDisk(() => {
        const at = alignment * (slots[2 * slotOf(file, Buffer.from(request, "hex")) + 1] as number);
        const length = at === 0 ? undefined : readAt(file, at + digestBytes, 4).readUInt32LE(0);
        return length === undefined ? undefined : readAt(file, at + headBytes, length).toString("utf8");
      });
    },

    set(request: string, text: string): void {
      onDisk(() => {
        const file = (opened ??= openNameless());
        const digest = Buffer.from(request, "hex");
        const encoded = Buffer.from(text, "utf8");
        const record = Buffer.concat([digest, Buffer.alloc(4), encoded]);
        record.writeUInt32LE(encoded.length, digestBytes);
        writeAllSync(file, record, end * alignment);

        const slot = slotOf(file, digest);
        used += slots[2 * slot + 1] === 0 ? 1 : 0;
        slots.set([digest.readUInt32LE(0), end], 2 * slot);
        end += Math.ceil(record.length / alignment);
        if (used > slots.length * (3 / 8)) {
          grow();
        }
      });
    },

    [Symbol.dispose]() {
      if (opened !== undefined) {
        closeSync(opened);
        opened = undefined;
      }
    },
  };
}

/** A file without a name disappears when the process ends, also by SIGKILL, and no other process can open it. */
function openNameless(): number {
  const path = join(tmpdir(), `infer-batch-answers-${randomUUID()}`);
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

/**
 * Writes all bytes at an offset of a file: on a disk that is full, the system may write a part of them first.
 * @public so that tests fill a disk
 */
export function writeAllSync(file: number, bytes: Uint8Array, at: number): void {
  for (let written = 0; written < bytes.length; ) {
    written += writeSync(file, bytes, written, bytes.length - written, at + written);
  }
}
