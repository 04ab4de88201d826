import { randomUUID } from "node:crypto";
import { closeSync, openSync, readSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";
import { createDigestIndex, writeAllSync } from "./digest-index.js";

/** Texts by the hex SHA-256 of requests. A few are held in memory, many in a temporary file. */
export interface AnswerTexts extends Disposable {
  get(request: string): string | undefined;
  /** A later text for a request replaces an earlier one. */
  set(request: string, text: string): void;
}

/** Bytes of texts in memory before all of them go to a file. */
const inMemoryBytes = 16 * 1024 ** 2;
/** Bytes that an entry takes besides its text. */
const entryBytes = 300;

/** @throws JobError DISK, from `set` and `get`, if the folder for temporary files is full or fails */
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
