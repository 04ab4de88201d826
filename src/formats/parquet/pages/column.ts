import type { Column } from "../../../columnar/types.js";
import { openLists } from "./lists.js";
import type { PageHeader } from "./page-header.js";
import {
  type ColumnOptions,
  readHeader,
  unpackDictionary,
  unpackPage,
  type ColumnRows,
  type PageRows,
  levelBytesOf,
  mostRows,
  pageLimitValues,
  pageRows,
} from "./page-values.js";
import type { StoredColumn } from "./storage.js";

interface OpenPage {
  readonly values: PageRows;
  readonly rows: number;
  used: number;
}

/** Opens the rows of one column chunk. @throws RangeError where the chunk is damaged or has unexpected contents */
export function openColumn(column: StoredColumn, tools: ColumnOptions): ColumnRows {
  return column.list === undefined ? openValues(column, tools) : openLists(column, column.list, tools);
}

function openValues(column: StoredColumn, tools: ColumnOptions): ColumnRows {
  const pages = pagesOf(column, tools);
  let page: OpenPage | undefined;
  const opened = (): OpenPage => {
    page = page === undefined || page.used === page.rows ? pages.unpack(pages.next()) : page;
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
      let left = rows;
      while (left > 0) {
        if (page === undefined || page.used === page.rows) {
          const header = pages.next();
          if (header.values <= left) {
            pages.pass(header);
            left -= header.values;
            continue;
          }
          page = pages.unpack(header);
        }
        const step = Math.min(left, page.rows - page.used);
        page.used += step;
        left -= step;
      }
    },
  };
}

interface Pages {
  /** The header of the next page with rows, which is then unpacked or passed. Dictionaries before it are kept. */
  next(): PageHeader;
  unpack(header: PageHeader): OpenPage;
  pass(header: PageHeader): void;
}

function pagesOf(column: StoredColumn, tools: ColumnOptions): Pages {
  let at = column.start;
  /** Rows of the pages so far. */
  let counted = 0;
  let dictionary: Column | undefined;
  const pass = ({ compressedBytes }: PageHeader): void => {
    at += compressedBytes;
  };
  return {
    next() {
      for (;;) {
        const place = readHeader(column, tools, at);
        const { kind, values } = place.page;
        ({ at } = place);
        if (kind === "dictionary" && dictionary === undefined && counted === 0) {
          dictionary = unpackDictionary(column, tools, place);
          pass(place.page);
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
    },
    unpack(header) {
      const { pageMemory } = tools;
      const lead = -(levelBytesOf(column, header) + pageMemory.moreLevelBytes) & 7; // so that the values are aligned
      const memory = (size: number): Uint8Array<ArrayBuffer> => pageMemory.memory("page", lead + size).subarray(lead);
      const bytes = unpackPage(column, { ...tools, memory }, { page: header, at });
      pass(header);
      const values = pageRows(column, bytes, { header, dictionary, pageMemory });
      return { values, rows: header.values, used: 0 };
    },
    pass,
  };
}
