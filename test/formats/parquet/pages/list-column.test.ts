import { describe, expect, test } from "vitest";
import type { FixedColumn, ListColumn } from "#src/columns/types.js";
import { openColumn } from "#src/formats/parquet/pages/column.js";
import type { ColumnRows } from "#src/formats/parquet/pages/page-values.js";
import { readLists } from "#src/formats/parquet/pages/lists.js";
import { openPageMemory } from "#src/formats/parquet/pages/page-memory.js";
import { plenty } from "../../../support/memory.js";
import { type TinyFile, tinyParquet } from "../../../support/parquet-bytes.js";
import { packedRun, repeatedRun } from "../../../support/parquet-runs.js";
import { doubleChunk, reader } from "../../../support/parquet-units.js";

/** Before each its length. */
function levels(...runs: readonly (readonly number[])[]): number[] {
  return runs.flatMap((run) => Array.from(new Uint8Array(Uint32Array.of(run.length).buffer)).concat(run));
}

interface ListPage extends Partial<TinyFile> {
  readonly repetition?: never;
  /** Repetition and definition levels: 0 is NULL, 1 a list without elements, 2 an element that is NULL, 3 an element. */
  readonly begins: readonly number[];
  readonly present?: readonly number[];
  readonly version?: 2;
}

function pageBytes({ begins, present = begins.map(() => 3), values = [], version, ...others }: ListPage): Buffer {
  const [repetition, definition] = [packedRun(begins, 1), packedRun(present, 2)];
  const runs =
    version === undefined
      ? { levels: levels(repetition, definition) }
      : {
          levels: repetition.concat(definition),
          levelBytes: { repetition: repetition.length, definition: definition.length },
        };
  const file = { values, ...runs, pageValues: begins.length, rows: 0, groupRows: 0, chunkValues: 0, ...others };
  const bytes = tinyParquet(file);
  const data = Buffer.from(new Float64Array(values).buffer);
  const end = bytes.indexOf(Buffer.concat([Buffer.from(file.levels), data])) + file.levels.length + data.length;
  return bytes.subarray(4, end + (others.rest?.length ?? 0));
}

interface Stated {
  readonly rows: number;
  readonly values?: number;
  readonly pageBytes?: number;
  readonly isElementOptional?: boolean;
}

function openPages(
  pages: readonly ListPage[],
  { rows, values, pageBytes: most, isElementOptional = true }: Stated,
): ColumnRows {
  const chunk = Buffer.concat(pages.map((page) => pageBytes(page)));
  const column = {
    ...doubleChunk(chunk.length, rows),
    type: { kind: "list", element: "float64" } as const,
    list: { isOptional: true, isElementOptional },
    values: values ?? pages.reduce((sum, { begins }) => sum + begins.length, 0),
    limits: most === undefined ? plenty : { ...plenty, pageBytes: most },
  };
  return openColumn(column, {
    read: reader(chunk),
    scratch: (size) => new Uint8Array(size),
    pageMemory: openPageMemory(),
  });
}

function shown({ offsets, child, valid }: ListColumn): (null | (null | number)[])[] {
  const { data, valid: present } = child as FixedColumn;
  const elements = Array.from(data as Float64Array, (value, place) => (present?.[place] === 0 ? null : value));
  return Array.from({ length: offsets.length - 1 }, (_, row) =>
    valid?.[row] === 0 ? null : elements.slice(offsets[row], offsets[row + 1]),
  );
}

function readAll(column: ColumnRows, rows: number): unknown[] {
  const found: unknown[] = [];
  while (found.length < rows) {
    found.push(...shown(column.take(Math.min(column.ahead(), rows - found.length)) as ListColumn));
  }
  return found;
}

const overPages: readonly ListPage[] = [
  { begins: [0, 1, 0], values: [1, 2, 3] },
  { begins: [1, 1], values: [4, 5] },
  { begins: [1], present: [2] },
  { begins: [1], values: [6] },
  { begins: [1, 0, 0, 0], present: [3, 0, 1, 3], values: [7, 8] },
  { begins: [1], values: [9] },
];

const listsOverPages = [[1, 2], [3, 4, 5, null, 6, 7], null, [], [8, 9]];

const ofVersion2 = overPages.map((page): ListPage => ({ ...page, version: 2 }));

describe("lists that go on in further pages of version 2, which writers must not make", () => {
  test.each([0, 1, 2, 3, 4])("pages of version 2 that begin inside a row are read whole from row %i on", (row) => {
    const column = openPages(ofVersion2, { rows: 5 });
    column.skip(row);
    expect(readAll(column, 5 - row)).toEqual(listsOverPages.slice(row));
  });

  test("a row that ends in the next page of version 2 is not given in part, although its header says one row", () => {
    const pages: ListPage[] = [
      { begins: [0], values: [1], version: 2 },
      { begins: [1, 0], present: [2, 3], values: [2], version: 2 },
    ];
    expect(readAll(openPages(pages, { rows: 2 }), 1)).toEqual([[1, null]]);
  });

  test.each([
    [{ repetition: -1, definition: 2 }, "-1 bytes of levels"],
    [{ repetition: 100, definition: 2 }, "100 bytes of levels in a page"],
    [{ repetition: 0, definition: 2 }, /./],
  ] as const)("levels of version 2 of %j bytes are refused", (levelBytes, says) => {
    const column = openPages([{ begins: [0, 0], values: [1, 2], version: 2, levelBytes }], { rows: 2 });
    expect(() => readAll(column, 2)).toThrow(RangeError);
    expect(() =>
      readAll(openPages([{ begins: [0, 0], values: [1, 2], version: 2, levelBytes }], { rows: 2 }), 2),
    ).toThrow(says);
  });
});

describe("lists that go on in further pages", () => {
  test("a page in which a row begins but none ends is left at once", () => {
    const pages = [
      { begins: [0], values: [1] },
      { begins: [0, 1], values: [2, 3] },
      { begins: [1], values: [4] },
    ];
    const column = openPages(pages, { rows: 2 });
    expect([column.ahead(), readAll(column, 1), column.ahead(), readAll(column, 1)]).toEqual([
      1,
      [[1]],
      1,
      [[2, 3, 4]],
    ]);
  });

  test("lists that go on in further pages are read whole", () => {
    expect(readAll(openPages(overPages, { rows: 5 }), 5)).toEqual(listsOverPages);
  });

  test.each([0, 1, 2, 3, 4])("lists that go on in further pages are read from row %i on", (row) => {
    const column = openPages(overPages, { rows: 5 });
    column.skip(row);
    expect(readAll(column, 5 - row)).toEqual(listsOverPages.slice(row));
  });

  test("lists that go on in further pages are read behind rows that are skipped in the middle", () => {
    const column = openPages(overPages, { rows: 5 });
    expect(readAll(column, 1)).toEqual([[1, 2]]);
    column.skip(0);
    column.skip(2);
    expect(readAll(column, 2)).toEqual([[], [8, 9]]);
  });

  test("a list that goes on in further pages is refused where a page has less memory", () => {
    const long = Array.from({ length: 10 }, (_, page) => ({
      begins: Array.from({ length: 60_000 }, (__, index) => (page + index === 0 ? 0 : 1)),
      values: Array.from({ length: 60_000 }, (__, index) => index),
    }));
    expect(readAll(openPages(long, { rows: 1 }), 1)).toHaveLength(1);
    const column = openPages(long, { rows: 1, pageBytes: 2 ** 19 });
    expect(() => column.ahead()).toThrow(/elements of lists at once/);
  });
});

test.each<Partial<Stated> & { what: string; pages: readonly ListPage[]; says: string }>([
  {
    what: "that begin inside a row where the chunk begins",
    pages: [{ begins: [1, 0], values: [1, 2] }],
    rows: 1,
    says: "a page that begins 1 rows with level 1",
  },
  { what: "that begin fewer rows", pages: [{ begins: [0, 1], values: [1, 2] }], says: "levels that begin 1 rows" },
  {
    what: "that begin more rows",
    pages: [
      { begins: [0, 1, 0], values: [1, 2, 3] },
      { begins: [0], values: [1] },
    ],
    says: "a page that begins 1 rows with level 0, 0 are due",
  },
  {
    what: "with a list that goes on although it has no elements",
    pages: [
      { begins: [0, 0], present: [3, 1], values: [1] },
      { begins: [1], values: [2] },
    ],
    says: "a list without elements goes on",
  },
  {
    what: "with NULL for a list inside it",
    pages: [{ begins: [0, 1, 0], present: [3, 0, 3], values: [1, 2] }],
    says: "the level 0 for an element",
  },
  {
    what: "with an element behind NULL",
    pages: [{ begins: [0, 1, 0], present: [0, 3, 3], values: [1, 2] }],
    says: "the level 0 for an element",
  },
  {
    what: "with fewer values than levels say",
    pages: [{ begins: [0, 0, 1], values: [1, 2] }],
    says: "values of 24 bytes in 16",
  },
  {
    what: "with more values than levels say",
    pages: [{ begins: [0, 0], values: [1, 2, 3] }],
    says: "values of 16 bytes in 24",
  },
  {
    what: "with fewer levels than their header says",
    pages: [{ begins: [0, 0], values: [1, 2], pageValues: 20 }],
    values: 20,
    says: "runs that are damaged",
  },
  {
    what: "with more values than the chunk",
    pages: [{ begins: [0, 0], values: [1, 2] }],
    values: 1,
    says: "a page (data) of 2 values, 1 are due",
  },
  {
    what: "whose levels end behind them",
    pages: [{ begins: [0, 0], values: [1, 2], levels: [255, 255, 255, 127, 3, 0] }],
    says: "bytes of a page",
  },
  {
    what: "with levels in an encoding that is out of use",
    pages: [{ begins: [0, 0], values: [1, 2], levelEncoding: 4 }],
    says: "levels of encodings 3 and 4",
  },
  {
    what: "with a level that the schema has not",
    pages: [{ begins: [0, 0], present: [3, 2], values: [1] }],
    isElementOptional: false,
    says: "the level 3 for an element",
  },
  {
    what: "with bytes behind the levels",
    pages: [{ begins: [0, 0], values: [1, 2], levels: levels(repeatedRun(0, 2, 1), [...repeatedRun(3, 2, 2), 0, 0]) }],
    says: "2 bytes behind the last run",
  },
  { what: "of another kind", pages: [{ begins: [0, 0], values: [1, 2], pageKind: 1 }], says: "a page (other)" },
  { what: "of no values", pages: [{ begins: [], values: [] }], values: 2, says: "of 0 values, 2 are due" },
])("pages of lists are refused $what", ({ pages, says, rows = 2, values, isElementOptional = true }) => {
  const column = openPages(pages, { rows, isElementOptional, ...(values === undefined ? {} : { values }) });
  expect(() => readAll(column, rows)).toThrow(says);
  expect(() => readAll(column, rows)).toThrow(RangeError);
});

test("a page that begins inside a row is refused where the page before it does not go on", () => {
  const runs = [...packedRun([1, 0, 0], 1), ...repeatedRun(3, 3, 2)];
  const request = {
    places: { repetition: { at: 0, end: 2 }, definition: { at: 2, end: runs.length }, valuesAt: runs.length },
    list: { isOptional: true, isElementOptional: true },
    values: 3,
    begun: 2,
    carried: 0,
    pageMemory: openPageMemory(),
  };
  const bytes = Uint8Array.from(runs);
  expect(() => readLists(bytes, { ...request, isContinued: false })).toThrow("a page begins inside a row");
  expect([...readLists(bytes, { ...request, isContinued: true, carried: 7 }).offsets]).toEqual([0, 8, 9, 10]);
});
