import { boundColumns, type Projection } from "../../models/binding/contract.js";
import { JobError } from "../../base/errors.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { tooLarge } from "../faults.js";
import { plannedColumns, removedRows } from "../planned-columns.js";
import type { SliceRequest } from "../format.js";
import { isInexact } from "./exact-table.js";
import { type ColumnChunk, type Footer, type Leaf, readParquetFooter } from "./footer.js";
import {
  boundedSlices,
  hasLongTypes,
  largestPage,
  type SliceChunk,
  sliceChunks,
  withTextSizes,
} from "./long-values.js";
import { codecs, hasReadableStart, type PageHeader, unpackStart } from "./pages/page-header.js";
import { encodings } from "./pages/page-values.js";
import { inPage, type Page, type PageBytes, PageFault, pagesOf, type ReadBytes, withPages } from "./pages/page-walk.js";
import { countLevels, readLengths } from "./pages/runs.js";

/** DamagedPart in the rows of a slice. */
export interface DamagedPart {
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

/** The first damage in the chunks that a slice reads: `check` returns it, or throws it as a PageFault. */
async function firstDamage(
  footer: Footer,
  slice: SliceRequest,
  isConcerned: (found: SliceChunk) => boolean,
  check: (
    found: SliceChunk,
    bytes: { readonly exact: ReadBytes; readonly windowed: ReadBytes },
  ) => Promise<DamagedPart | undefined>,
): Promise<DamagedPart | undefined> {
  const { path } = slice.file;
  const concerned = [...sliceChunks(footer, slice)].filter(isConcerned);
  if (concerned.length === 0) {
    return undefined;
  }
  return await withPages({ path }, footer, async ({ exact, windowed }: PageBytes) => {
    const bytes = { exact, windowed: windowed() };
    for (const found of concerned) {
      try {
        const damage = await check(found, bytes);
        if (damage !== undefined) {
          return damage;
        }
      } catch (error) {
        if (error instanceof PageFault) {
          return { error: corrupt(path, `${found.place}: ${error.message}`), rowStart: found.rows.rowStart };
        }
        throw error;
      }
    }
    return undefined;
  });
}

const smallerPages =
  "write the shard with smaller pages (pyarrow: write_batch_size and data_page_size), or leave the column out of output.columns";

function largePage(
  { file: { path } }: SliceRequest,
  { place, rows: { rowStart } }: SliceChunk,
  { memory, sizeBytes, what }: { readonly memory: MemoryBudget; readonly sizeBytes: number; readonly what: string },
): DamagedPart | undefined {
  const page = { sizeBytes, limitBytes: memory.pageBytes, what, remedy: smallerPages };
  return sizeBytes > memory.pageBytes
    ? { error: tooLarge(`reading ${path}: ${place}`, memory, page), rowStart }
    : undefined;
}

/** What a page holds is decoded as a whole. Only headers are read, only in chunks larger than a page's limit. */
async function findLargePage(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<DamagedPart | undefined> {
  const mayBeLarge = ({ chunk }: SliceChunk): boolean => chunk.uncompressedBytes > memory.pageBytes;
  return await firstDamage(footer, slice, mayBeLarge, async (found, { exact }) => {
    const { chunk } = found;
    const end = chunk.start + chunk.compressedBytes;
    const sizeBytes = await largestPage(pagesOf(exact, chunk, footer), (_, bodyEnd) => bodyEnd >= end);
    return largePage(slice, found, { memory, sizeBytes, what: "a page" });
  });
}

/** The number of DELTA_BYTE_ARRAY in parquet.thrift. */
const prefixedEncoding = 7;

/**
 * Finds the first page of a slice whose texts share their beginning with the one before (DELTA_BYTE_ARRAY), and whose
 * prefixes contradict each other, or whose texts do not fit into memory. DuckDB makes all texts of a page at once, and
 * takes memory for one before it looks whether the text before is as long as the beginning that they share: so a page
 * of some bytes can take any memory. https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTASTRING
 * @public so that tests see it
 */
export async function findUnfitPrefixes(
  footer: Footer,
  slice: SliceRequest,
  memory: MemoryBudget,
): Promise<DamagedPart | undefined> {
  return await firstDamage(footer, slice, isPrefixed, async (found, { windowed }) => {
    const { chunk, leaf } = found;
    const end = chunk.start + chunk.compressedBytes;
    let sizeBytes = 0;
    for await (const page of pagesOf(windowed, chunk, footer)) {
      const { header, bodyEnd } = page;
      if (header.kind.startsWith("data") && header.encoding === prefixedEncoding && header.values > 0) {
        const bytes = await inPage(page, async () => {
          const unpacked = await unpackPage(windowed, chunk, page);
          return textBytes(unpacked.subarray(valuesAt(unpacked, page, leaf)), header.values);
        });
        sizeBytes = Math.max(sizeBytes, bytes);
      }
      if (bodyEnd >= end) {
        break;
      }
    }
    return largePage(slice, found, { memory, sizeBytes, what: "a page of texts that share their beginnings" });
  });
}

function isPrefixed({ chunk }: SliceChunk): boolean {
  return chunk.hasPrefixes && hasReadableStart(chunk.codec);
}

/** The levels of a page of version 2 come before the compressed bytes. */
async function unpackPage(read: ReadBytes, { codec }: ColumnChunk, { header, bodyStart }: Page): Promise<Uint8Array> {
  const { kind, levelBytes, compressedBytes, uncompressedBytes, isCompressed } = header;
  const levels = kind === "data-v2" ? levelBytes.repetition + levelBytes.definition : 0;
  const packed = await read(bodyStart, compressedBytes);
  if (packed.length < compressedBytes || levels > compressedBytes) {
    throw new RangeError("it ends in the middle");
  }
  if (!isCompressed) {
    return packed;
  }
  const values = {
    start: (bytes: number) => packed.subarray(levels, levels + bytes),
    compressedBytes: compressedBytes - levels,
    uncompressedBytes: uncompressedBytes - levels,
  };
  return Buffer.concat([packed.subarray(0, levels), unpackStart(codec, values, values.uncompressedBytes)]);
}

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
 * The first damage in the levels of the nested columns that a slice reads, which DuckDB does not check: where levels do
 * not fit the pages that they are in, it returns rows that the writer did not write.
 * https://parquet.apache.org/docs/file-format/nestedencoding/
 */
async function findUnfitLevels(slice: SliceRequest): Promise<DamagedPart | undefined> {
  if (!mayBeNested(slice.projection)) {
    return undefined;
  }
  const footer = await readParquetFooter(slice.file);
  return await firstDamage(footer, slice, hasCheckedLevels, async (found, { windowed }) => {
    await checkLevels(windowed, found, footer);
    return undefined;
  });
}

/** DuckDB refuses codecs that are not known here. */
function hasCheckedLevels({ chunk, leaf: { path, repetition, definition } }: SliceChunk): boolean {
  const isNested = repetition > 0 || (path.length > 1 && definition > 0);
  return isNested && !chunk.isElsewhere && hasReadableStart(chunk.codec);
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

async function checkLevels(read: ReadBytes, { chunk, leaf, rows }: SliceChunk, footer: Footer): Promise<void> {
  let values = 0;
  let begun = 0;
  for await (const page of pagesOf(read, chunk, footer)) {
    const { header } = page;
    if (header.kind.startsWith("data") && header.values > 0) {
      const isFirst = values === 0;
      begun += await inPage(page, async () => {
        const { first, rowsBegun } = await checkPage(pageStart(read, chunk, page), { header, leaf });
        if (isFirst && first !== 0) {
          throw new RangeError(`its first repetition level is ${first}, not 0: it begins inside a row`);
        }
        return rowsBegun;
      });
    }
    values += header.values;
    if (values >= chunk.values) {
      break;
    }
  }
  if (leaf.repetition > 0 && begun !== rows.groupRows) {
    throw new PageFault(`its repetition levels begin ${begun} rows, the row group has ${rows.groupRows}`);
  }
}

/** The first bytes of a page, unpacked: at least so many. @throws RangeError where it has fewer */
type PageStart = (length: number) => Promise<Uint8Array>;

/** Most pages have fewer bytes of levels. */
const startBytes = 8 * 1024;
const lengthBytes = Uint32Array.BYTES_PER_ELEMENT;

function pageStart(read: ReadBytes, { codec }: ColumnChunk, { header, bodyStart }: Page): PageStart {
  const { kind, compressedBytes, uncompressedBytes } = header;
  const isPlain = kind === "data-v2" || codec === codecs.none;
  let unpacked: Uint8Array = new Uint8Array(0);
  return async (wanted) => {
    const length = Math.min(Math.max(wanted, startBytes), isPlain ? compressedBytes : uncompressedBytes);
    if (unpacked.length < wanted && wanted <= length) {
      const packed = await read(bodyStart, isPlain ? length : compressedBytes);
      const page = { start: (bytes: number) => packed.subarray(0, bytes), compressedBytes, uncompressedBytes };
      unpacked = isPlain ? packed : unpackStart(codec, page, length);
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

interface ReadableParts {
  /** Parts that DuckDB reads one after the other, as its memory allows. */
  readonly parts: Iterable<SliceRequest>;
  readonly footer: Footer;
  /** What is wrong with the rows after these; undefined: the parts are the whole slice. */
  readonly unfit: DamagedPart | undefined;
}

/**
 * Finds the rows of a slice that DuckDB may be given. Levels are checked first: if they do not fit their pages, DuckDB
 * may end the process.
 */
export async function readableParts(slice: SliceRequest, memory: MemoryBudget): Promise<ReadableParts> {
  const footer = await withTextSizes(await readParquetFooter(slice.file), slice);
  const large = (await findLargePage(footer, slice, memory)) ?? (await findUnfitPrefixes(footer, slice, memory));
  const unfit = (await findUnfitLevels({ ...slice, rowEnd: large?.rowStart ?? slice.rowEnd })) ?? large;
  return { parts: boundedSlices(footer, { ...slice, rowEnd: unfit?.rowStart ?? slice.rowEnd }, memory), footer, unfit };
}

/**
 * What DuckDB selects of whole shards that it may be given in one query, whose values and types it reads as the plan has
 * them; undefined: each needs a query of its own.
 */
export async function readableTogether(
  slices: readonly SliceRequest[],
  memory: MemoryBudget,
): Promise<Pick<Footer, "select"> | undefined> {
  const partitions = new Set(slices.map((slice) => JSON.stringify([...slice.partitions])));
  let select: string | undefined;
  for (const [index, slice] of slices.entries()) {
    const columns = plannedColumns(slice.projection);
    const footer = await readParquetFooter(slice.file);
    select = index === 0 ? footer.select : select;
    if (
      partitions.size > 1 ||
      footer.select !== select ||
      (await removedRows(slice.file)).length > 0 ||
      isInexact(footer, columns) ||
      (await findUnfitLevels(slice)) !== undefined ||
      (await isLarge(slice, memory))
    ) {
      return undefined;
    }
  }
  return { select };
}

/** Values of fixed width cannot make a shard large that is small on disk: coalesced shards have few rows. */
async function isLarge(slice: SliceRequest, memory: MemoryBudget): Promise<boolean> {
  if (!hasLongTypes(slice.projection)) {
    return false;
  }
  const footer = await withTextSizes(await readParquetFooter(slice.file), slice);
  const [first] = boundedSlices(footer, slice, memory);
  return (
    first?.rowEnd !== slice.rowEnd ||
    footer.rowGroups.some(({ chunks }) => chunks.some(({ hasPrefixes }) => hasPrefixes))
  );
}
