import { JobError, errnoOf, messageOf } from "../../util/errors.js";
import type { MemoryBudget } from "../../util/memory-budget.js";
import type { SliceRequest } from "../port.js";
import { tooLarge } from "../faults.js";
import { type ColumnChunk, type Footer, placeOf, groupsBetween, type Leaf, readFooter } from "./footer.js";
import { chunksOf, boundedSlices, hasLongTypes, withTextSizes } from "./long-values.js";
import { promises } from "node:fs";
import { PageFault, pagesOf, unbuffered, type Page, type ReadBytes, windowed } from "./pages/page-walk.js";
import { codecs, hasReadableStart, unpackStart, type PageHeader } from "./pages/page-header.js";
import { readLengths, countLevels } from "./pages/runs.js";
import { boundColumns, type Projection } from "../../binding/contract.js";
import { encodings } from "./pages/page-values.js";
import { columnsInFile, plannedColumns } from "../planned-columns.js";
import { isInexact } from "./exact-table.js";

/** Damage in the rows of a slice. */
export interface Damage {
  readonly error: JobError;
  /** The rows of the slice before this one can be read. */
  readonly rowStart: number;
}

/** The error for a shard whose pages are damaged, or cannot be read. */
export function corrupt(path: string, found: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${found}`, { hint: hintFor(found), cause });
}

function hintFor(found: string): string {
  return /unsupported|only supported|not supported/i.test(found)
    ? "the shard has a codec or an encoding that cannot be read; write it again with another one, and score that with --new-run"
    : "restore the planned file with its modification time (cp -p), and run again; committed spans are kept. If the file must be written again, --new-run scores it";
}

/** A column chunk that a slice reads. */
interface SliceChunk {
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
  /** "row group 3, column `user.age`" */
  readonly place: string;
  /** The first row of the slice that the chunk has. */
  readonly rowStart: number;
}

/** Yields the column chunks that a slice reads, row group by row group, except encrypted ones. */
function* sliceChunks(footer: Footer, slice: SliceRequest): Generator<SliceChunk> {
  for (const { group, chunks, rowStart } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      const leaf = footer.leaves[chunks.indexOf(chunk)];
      if (leaf !== undefined && !chunk.encrypted) {
        yield { chunk, leaf, place: placeOf(group, chunk), rowStart };
      }
    }
  }
}

/** Returns the error for a chunk with a page that exceeds the memory limit. */
function largePage(
  path: string,
  { place, rowStart }: SliceChunk,
  { memory, sizeBytes, what }: { readonly memory: MemoryBudget; readonly sizeBytes: number; readonly what: string },
): Damage {
  const page = { sizeBytes, limitBytes: memory.pageBytes, what, remedy: smallerPages };
  return { error: tooLarge(`reading ${path}: ${place}`, memory, page), rowStart };
}

/** How to write a shard so that its pages fit into memory. */
const smallerPages =
  "write the shard with smaller pages (pyarrow: write_batch_size and data_page_size), or leave the column out of output.columns";

/**
 * The first page of a slice, or dictionary, that there is no memory for. What a page holds is decoded as a whole, even
 * if only a part is needed. Only headers are read, and only in chunks that are larger than the limit of a page.
 */
async function findLargePage(footer: Footer, slice: SliceRequest, memory: MemoryBudget): Promise<Damage | undefined> {
  const { path } = slice.file;
  for (const found of sliceChunks(footer, slice)) {
    if (found.chunk.uncompressedBytes > memory.pageBytes) {
      const sizeBytes = await largestPage(path, footer, found.chunk);
      if (sizeBytes > memory.pageBytes) {
        return largePage(path, found, { memory, sizeBytes, what: "a page" });
      }
    }
  }
  return undefined;
}

/**
 * Returns the uncompressed size of the largest page of a chunk; 0 if its headers are damaged, which the decoder
 * reports.
 */
async function largestPage(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  const end = chunk.start + chunk.compressedBytes;
  let largest = 0;
  try {
    await using file = await promises.open(path);
    for await (const { header, bodyEnd } of pagesOf(unbuffered(file, footer), chunk, footer)) {
      largest = Math.max(largest, header.uncompressedBytes);
      if (bodyEnd >= end) {
        break;
      }
    }
    return largest;
  } catch (error) {
    if (error instanceof PageFault) {
      return 0;
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
  }
}

/**
 * Texts that share their beginning with the one before (DELTA_BYTE_ARRAY). DuckDB makes all texts of a page at once, and
 * takes memory for one before it looks whether the text before is as long as the beginning that they share: so a page
 * of some bytes can take any memory. https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTASTRING
 */

/** The number of DELTA_BYTE_ARRAY in parquet.thrift. */
const prefixedEncoding = 7;

/**
 * Finds the first page of a slice whose prefixes contradict each other, or whose texts do not fit into memory.
 * @public so that tests see it
 */
export async function findUnfitPrefixes(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<Damage | undefined> {
  const { path } = slice.file;
  for (const found of sliceChunks(footer, slice)) {
    const { chunk, leaf, place, rowStart } = found;
    if (!chunk.hasPrefixes || !hasReadableStart(chunk.codec)) {
      continue;
    }
    try {
      await using file = await promises.open(path);
      const sizeBytes = await largestTexts(windowed(file, footer), { footer, chunk, leaf });
      if (sizeBytes > memory.pageBytes) {
        return largePage(path, found, { memory, sizeBytes, what: "a page of texts that share their beginnings" });
      }
    } catch (error) {
      if (error instanceof PageFault) {
        return { error: corrupt(path, `${place}: ${error.message}`), rowStart };
      }
      throw new JobError("DISK", `reading ${path}: ${errnoOf(error) ?? messageOf(error)}`, { cause: error });
    }
  }
  return undefined;
}

interface PrefixedChunk {
  readonly footer: Footer;
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
}

/** Returns the size of the texts of the page with the largest texts. @throws PageFault */
async function largestTexts(read: ReadBytes, { footer, chunk, leaf }: PrefixedChunk): Promise<number> {
  const end = chunk.start + chunk.compressedBytes;
  let largest = 0;
  for await (const page of pagesOf(read, chunk, footer)) {
    const { header, place, bodyEnd } = page;
    if (header.kind.startsWith("data") && header.encoding === prefixedEncoding && header.values > 0) {
      try {
        const bytes = await unpackPage(read, chunk, page);
        largest = Math.max(largest, textBytes(bytes.subarray(valuesAt(bytes, page, leaf)), header.values));
      } catch (error) {
        throw errnoOf(error) === undefined ? new PageFault(chunk, `${place}: ${messageOf(error)}`) : error;
      }
    }
    if (bodyEnd >= end) {
      break;
    }
  }
  return largest;
}

/** Uncompresses a page. The levels of a page of version 2 come before the compressed bytes. */
async function unpackPage(read: ReadBytes, { codec }: ColumnChunk, { header, bodyStart }: Page): Promise<Uint8Array> {
  const { kind, levelBytes, compressedBytes, uncompressedBytes, isCompressed } = header;
  const levels = kind === "data-v2" ? levelBytes.repetition + levelBytes.definition : 0;
  const packed = await read(bodyStart, compressedBytes);
  if (packed.length < compressedBytes || levels > compressedBytes) {
    throw new RangeError("it ends in the middle");
  }
  if (codec === codecs.none || !isCompressed) {
    return packed;
  }
  const wholeBytes = uncompressedBytes - levels;
  const values = await unpackStart(codec, packed.subarray(levels), { length: wholeBytes, wholeBytes });
  return Buffer.concat([packed.subarray(0, levels), values]);
}

/** Returns where values begin, behind the levels. */
function valuesAt(bytes: Uint8Array, { header: { kind, levelBytes } }: Page, leaf: Leaf): number {
  if (kind === "data-v2") {
    return levelBytes.repetition + levelBytes.definition;
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  for (const most of [leaf.repetition, leaf.definition]) {
    at += most === 0 ? 0 : Uint32Array.BYTES_PER_ELEMENT + view.getUint32(at, true);
  }
  return at;
}

/** Returns the size of all texts of a page. @throws RangeError for a prefix that is longer than the text before */
function textBytes(values: Uint8Array, most: number): number {
  const cursor = { bytes: values, at: 0 };
  const prefixes = readLengths(cursor, most);
  const suffixes = readLengths(cursor, most);
  if (prefixes.length !== suffixes.length) {
    throw new RangeError(`${prefixes.length} beginnings and ${suffixes.length} ends of texts`);
  }
  let before = 0;
  let total = 0;
  for (let index = 0; index < prefixes.length; index += 1) {
    const prefix = prefixes[index] as number;
    if (prefix > before) {
      throw new RangeError(`a text begins like ${prefix} bytes of the one before it, which has ${before}`);
    }
    before = prefix + (suffixes[index] as number);
    total += before;
  }
  return total;
}

/**
 * Repetition and definition levels of nested columns, which DuckDB does not check: where they do not fit the pages that
 * they are in, it returns rows that the writer did not write.
 * https://parquet.apache.org/docs/file-format/nestedencoding/
 */

/** A row group's rows in a slice, and the columns that are checked. */
interface GroupLevels {
  readonly group: number;
  /** The number of rows of the row group. */
  readonly rows: number;
  /** The rows of the shard that the slice has. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly columns: readonly { readonly chunk: ColumnChunk; readonly leaf: Leaf }[];
}

/** Most pages have fewer bytes of levels. */
const startBytes = 8 * 1024;
const lengthBytes = Uint32Array.BYTES_PER_ELEMENT;

/** The first damage in the levels of the nested columns that a slice reads, if there is any. */
async function findUnfitLevels(slice: SliceRequest): Promise<Damage | undefined> {
  if (!mayBeNested(slice.projection)) {
    return undefined;
  }
  const footer = await readFooter(slice.file);
  for (const group of nestedGroups(slice, footer)) {
    const damage = await checkGroup(slice, footer, group);
    if (damage !== undefined) {
      return damage;
    }
  }
  return undefined;
}

/** Types of what expressions use are not known here. */
function mayBeNested(projection: Projection): boolean {
  const used = projection.expressions?.list.some(({ uses }) => uses.length > 0) ?? false;
  return (
    used ||
    boundColumns(projection).some(
      ({ path, type }) => path.length > 1 || (typeof type === "object" && type.kind !== "decimal"),
    )
  );
}

function nestedGroups(slice: SliceRequest, footer: Footer): GroupLevels[] {
  const names = new Set(columnsInFile(slice.projection).map((name) => name.toLowerCase()));
  const groups: GroupLevels[] = [];
  for (const { group, groupRows, rowStart, rowEnd, chunks } of groupsBetween(footer, slice)) {
    const columns = footer.leaves.flatMap((leaf, index) => {
      const chunk = chunks[index];
      const isRead = names.has((leaf.path[0] ?? "").toLowerCase()) && isNested(leaf);
      return isRead && chunk !== undefined && isChecked(chunk) ? [{ chunk, leaf }] : [];
    });
    if (columns.length > 0) {
      groups.push({ group, rows: groupRows, rowStart, rowEnd, columns });
    }
  }
  return groups;
}

function isNested({ path, repetition, definition }: Leaf): boolean {
  return repetition > 0 || (path.length > 1 && definition > 0);
}

/** DuckDB refuses what is encrypted, and codecs that are not known here. */
function isChecked({ encrypted, isElsewhere, codec }: ColumnChunk): boolean {
  return !encrypted && !isElsewhere && hasReadableStart(codec);
}

async function checkGroup(
  { file: { path } }: SliceRequest,
  footer: Footer,
  { group, rows, rowStart, rowEnd, columns }: GroupLevels,
): Promise<Damage | undefined> {
  try {
    await using file = await promises.open(path);
    const read = windowed(file, footer);
    for (const { chunk, leaf } of columns) {
      await checkChunk(read, { chunk, leaf, rows, footer });
    }
    return undefined;
  } catch (error) {
    if (error instanceof PageFault) {
      const place = `row group ${group} (rows ${rowStart} to ${rowEnd - 1}), column \`${error.chunk.path[0]}\``;
      return { error: corrupt(path, `${place}: ${error.message}`), rowStart };
    }
    const errno = errnoOf(error);
    throw errno === undefined ? error : new JobError("DISK", `reading ${path}: ${errno}`, { cause: error });
  }
}

interface CheckedChunk {
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
  /** The number of rows of the row group. */
  readonly rows: number;
  readonly footer: Footer;
}

/** @throws PageFault */
async function checkChunk(read: ReadBytes, { chunk, leaf, rows, footer }: CheckedChunk): Promise<void> {
  let values = 0;
  let begun = 0;
  for await (const page of pagesOf(read, chunk, footer)) {
    const { header, place } = page;
    if (header.kind.startsWith("data") && header.values > 0) {
      try {
        const { first, rowsBegun } = await checkPage(pageStart(read, chunk, page), { header, leaf });
        if (values === 0 && first !== 0) {
          throw new RangeError(`its first repetition level is ${first}, not 0: it begins inside a row`);
        }
        begun += rowsBegun;
      } catch (error) {
        // A file that cannot be read is not a damaged page.
        throw errnoOf(error) === undefined ? new PageFault(chunk, `${place}: ${messageOf(error)}`) : error;
      }
    }
    values += header.values;
    if (values >= chunk.values) {
      break;
    }
  }
  if (leaf.repetition > 0 && begun !== rows) {
    throw new PageFault(chunk, `its repetition levels begin ${begun} rows, the row group has ${rows}`);
  }
}

/** The first bytes of a page, unpacked: at least so many. @throws RangeError where it has fewer */
type PageStart = (length: number) => Promise<Uint8Array>;

function pageStart(read: ReadBytes, chunk: ColumnChunk, { header, bodyStart }: Page): PageStart {
  const { kind, compressedBytes, uncompressedBytes: wholeBytes } = header;
  const isPlain = kind === "data-v2" || chunk.codec === codecs.none;
  let unpacked: Uint8Array = new Uint8Array(0);
  return async (wanted) => {
    const length = Math.min(Math.max(wanted, startBytes), isPlain ? compressedBytes : wholeBytes);
    if (unpacked.length < wanted && wanted <= length) {
      unpacked = isPlain
        ? await read(bodyStart, length)
        : await unpackStart(chunk.codec, await read(bodyStart, compressedBytes), { length, wholeBytes });
    }
    if (unpacked.length < wanted) {
      throw new RangeError("its levels end in the middle");
    }
    return unpacked;
  };
}

/** `first`: of the repetition levels. @throws RangeError */
async function checkPage(
  start: PageStart,
  { header, leaf }: { header: PageHeader; leaf: Leaf },
): Promise<{ first: number; rowsBegun: number }> {
  const { kind, values, levelBytes, levelEncoding, repetitionEncoding } = header;
  let at = 0;
  const check = async (
    most: number,
    { encoding, bytes }: { encoding: number; bytes: number },
  ): Promise<{ first: number; zeros: number }> => {
    if (most === 0) {
      at += bytes;
      return { first: 0, zeros: values };
    }
    let length = bytes;
    if (kind === "data") {
      if (encoding !== encodings.runs) {
        throw new RangeError(`levels of encoding ${encoding} are not supported`);
      }
      const head = await start(at + lengthBytes);
      length = new DataView(head.buffer, head.byteOffset).getUint32(at, true);
      at += lengthBytes;
    }
    const end = at + length;
    const found = countLevels(await start(end), { at, end, most }, values);
    at = end;
    return found;
  };
  const v2 = kind === "data-v2";
  const repetition = await check(leaf.repetition, {
    encoding: repetitionEncoding,
    bytes: v2 ? levelBytes.repetition : 0,
  });
  await check(leaf.definition, { encoding: levelEncoding, bytes: v2 ? levelBytes.definition : 0 });
  return { first: repetition.first, rowsBegun: repetition.zeros };
}

/** The rows of a slice that DuckDB may be given. */
interface ReadableParts {
  /** Parts that DuckDB reads one after the other, as its memory allows. */
  readonly parts: Iterable<SliceRequest>;
  readonly footer: Footer;
  /** What is wrong with the rows after these; undefined: the parts are the whole slice. */
  readonly unfit: Damage | undefined;
}

/**
 * Finds the rows of a slice that DuckDB may be given. Levels are checked first: if they do not fit their pages, DuckDB
 * may end the process.
 */
export async function readableParts(slice: SliceRequest, memory: MemoryBudget): Promise<ReadableParts> {
  const footer = await withTextSizes(await readFooter(slice.file), slice);
  const large = (await findLargePage(footer, slice, memory)) ?? (await findUnfitPrefixes(footer, slice, memory));
  const unfit = (await findUnfitLevels({ ...slice, rowEnd: large?.rowStart ?? slice.rowEnd })) ?? large;
  return { parts: boundedSlices(footer, { ...slice, rowEnd: unfit?.rowStart ?? slice.rowEnd }, memory), footer, unfit };
}

/** Whether DuckDB may be given whole shards in one query, whose values and types it reads as the plan has them. */
export async function areReadableTogether(slices: readonly SliceRequest[], memory: MemoryBudget): Promise<boolean> {
  for (const slice of slices) {
    const columns = plannedColumns(slice.projection);
    if (
      isInexact(await readFooter(slice.file), columns) ||
      (await findUnfitLevels(slice)) !== undefined ||
      (await isLarge(slice, memory))
    ) {
      return false;
    }
  }
  return true;
}

/**
 * Whether a shard, small as it is on disk, must be read with bounds of its own. Values of fixed width cannot make it
 * large: coalesced shards have few rows.
 */
async function isLarge(slice: SliceRequest, memory: MemoryBudget): Promise<boolean> {
  if (!hasLongTypes(slice.projection)) {
    return false;
  }
  const footer = await withTextSizes(await readFooter(slice.file), slice);
  const [first] = boundedSlices(footer, slice, memory);
  return (
    first?.rowEnd !== slice.rowEnd ||
    footer.rowGroups.some(({ chunks }) => chunks.some(({ hasPrefixes }) => hasPrefixes))
  );
}
