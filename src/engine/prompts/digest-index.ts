import { readSync, writeSync } from "node:fs";

/** Finds places by 32-byte digests, in a file. Memory holds four bytes for about 180 digests. */
export interface DigestIndex {
  /** Places whose digests begin with the same eight bytes: the caller compares the rest. */
  find(digest: Buffer): readonly number[];
  add(digest: Buffer, place: number): void;
}

const pageBytes = 4096;
/** Digests in the page, and how many bits of their hash they share. */
const headerBytes = 8;
const digestBytes = 8;
const entryBytes = 16;
const entriesPerPage = Math.floor((pageBytes - headerBytes) / entryBytes);

/**
 * Extendible hashing (Fagin and others, 1979): a page that is full is divided by one more bit of the hash, so that adding
 * never stops to write the whole index again.
 * @param file an empty file, opened to be read and written
 */
export function createDigestIndex(file: number): DigestIndex {
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
    for (let at = headerBytes; at < pageBytes - (entryBytes - 1); at += entryBytes) {
      addEntry((hashOf(full, at) & bit) === 0 ? stays : goes, full.subarray(at, at + entryBytes));
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
      for (let at = headerBytes; at < endOf(page); at += entryBytes) {
        if (digest.compare(page, at, at + digestBytes, 0, digestBytes) === 0) {
          places.push(page.readUIntLE(at + digestBytes, 6));
        }
      }
      return places;
    },
    add(digest, place) {
      const entry = Buffer.alloc(entryBytes);
      digest.copy(entry, 0, 0, digestBytes);
      entry.writeUIntLE(place, digestBytes, 6);
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
  return headerBytes + page.readUInt32LE(0) * entryBytes;
}

/** Returns false if the page is full. */
function addEntry(page: Buffer, entry: Buffer): boolean {
  const count = page.readUInt32LE(0);
  if (count === entriesPerPage) {
    return false;
  }
  entry.copy(page, endOf(page));
  page.writeUInt32LE(count + 1, 0);
  return true;
}

/** Writes all bytes at an offset of a file: on a disk that is full, the system may write a part of them first. */
export function writeAllSync(file: number, bytes: Uint8Array, at: number): void {
  for (let written = 0; written < bytes.length; ) {
    written += writeSync(file, bytes, written, bytes.length - written, at + written);
  }
}
