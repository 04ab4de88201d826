import type { Column } from "../../../columns/types.js";
import { openLists } from "./lists.js";
import type { PageHeader } from "./page-header.js";
import {
  type ColumnOptions,
  type ColumnRows,
  levelBytesOf,
  mostRows,
  pageLimitValues,
  pageRows,
  type PageRows,
  readPageHeader,
  unpackDictionary,
  unpackPage,
} from "./page-values.js";
import type { ChunkColumn } from "./storage.js";

interface OpenPage {
  readonly values: PageRows;
  readonly rows: number;
  used: number;
}

/** Opens the rows of one column chunk. @throws RangeError where the chunk is damaged or has unexpected contents */
export function openColumn(column: ChunkColumn, tools: ColumnOptions): ColumnRows {
  return column.list === undefined ? openValues(column, tools) : openLists(column, column.list, tools);
}

function openValues(column: ChunkColumn, tools: ColumnOptions): ColumnRows {
  const { pageMemory } = tools;
  let at = column.start;
  /** Rows of the pages so far. */
  let counted = 0;
  let dictionary: Column | undefined;
  let page: OpenPage | undefined;

  /** The header of the next page with rows, which is then unpacked or passed. Dictionaries before it are kept. */
  const nextHeader = (): PageHeader => {
    for (;;) {
      const place = readPageHeader(column, tools, at);
      const { kind, values, compressedBytes } = place.page;
      ({ at } = place);
      if (kind === "dictionary" && dictionary === undefined && counted === 0) {
        dictionary = unpackDictionary(column, tools, place);
        at += compressedBytes;
        continue;
      }
      const left = column.rows - counted;
      const isData = kind === "data" || kind === "data-v2";
      // Were a page without values, or of another kind, passed over, damage to a header could shift rows.
      if (!isData || values <= 0 || values > Math.min(left, pageLimitValues)) {
        throw new RangeError(`a page (${kind}) of ${values} values, ${left} are due`);
      }
      counted += values;
      return place.page;
    }
  };

  const unpacked = (header: PageHeader): OpenPage => {
    const lead = -(levelBytesOf(column, header) + pageMemory.moreLevelBytes) & 7; // so that the values are aligned
    const memory = (size: number): Uint8Array<ArrayBuffer> => pageMemory.memory("page", lead + size).subarray(lead);
    const bytes = unpackPage(column, { ...tools, memory }, { page: header, at });
    at += header.compressedBytes;
    return { values: pageRows(column, bytes, { header, dictionary, pageMemory }), rows: header.values, used: 0 };
  };

  const opened = (): OpenPage => {
    page = page === undefined || page.used === page.rows ? unpacked(nextHeader()) : page;
    return page;
  };

  return {
    ahead() {
      const { rows, used, values } = opened();
      return values.fitting(used, Math.min(rows, used + mostRows));
    },
    take(rows) {
      const open = opened();
      const from = open.used;
      open.used += rows;
      return open.values.take(from, open.used);
    },
    skip(rows) {
      for (let left = rows; left > 0; ) {
        if (page === undefined || page.used === page.rows) {
          const header = nextHeader();
          if (header.values <= left) {
            at += header.compressedBytes;
            left -= header.values;
            continue;
          }
          page = unpacked(header);
        }
        const step = Math.min(left, page.rows - page.used);
        page.used += step;
        left -= step;
      }
    },
  };
}
