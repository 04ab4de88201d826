/**
 * Repetition and definition levels of nested columns, which DuckDB does not check: where they do not fit the pages that
 * they are in, it returns rows that the writer did not write.
 * https://parquet.apache.org/docs/file-format/nestedencoding/
 */
import { promises } from "node:fs";
import { boundColumns, type Projection } from "../../../binding/contract.js";
import { errnoOf, JobError, messageOf } from "../../../util/errors.js";
import { countLevels } from "./level-runs.js";
import { corrupt, type Damage } from "../damage.js";
import { codecs } from "./codecs.js";
import type { ColumnChunk, Footer } from "../footer/footer.js";
import { readFooter } from "../footer/read-footer.js";
import { groupsBetween } from "../footer/groups.js";
import type { Leaf } from "../footer/leaves.js";
import { encodings } from "./page-values.js";
import type { PageHeader } from "./page-header.js";
import { type Page, PageFault, pagesOf, type ReadBytes, windowed } from "./page-walk.js";
import { hasReadableStart, unpackStart } from "./prefix.js";
import { columnsInFile } from "../../planned-columns.js";
import type { SliceRequest } from "../../port.js";

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
export async function findUnfitLevels(slice: SliceRequest): Promise<Damage | undefined> {
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
