import { afterAll, describe, expect, test } from "vitest";
import { corpusIsWhole, corpusNote, type Expected, expectedFiles, filesOfCorpus } from "./corpus.js";
import { carryColumn, observe } from "./observe.js";
import { firstOf, torture } from "../support/torture.js";
import { startProcesses } from "./processes.js";

/** Puts what is pinned of a message in place of the message, where it is how that starts. */
function asPinned(found: Expected, pinned: Expected): Expected {
  return found !== "read" && pinned !== "read" && found.says.startsWith(pinned.says)
    ? { ...found, says: pinned.says }
    : found;
}

/** Each waits for its turn, and a process that hangs is waited for. */
const timeout = 300_000;
const files = filesOfCorpus();
const pinned = Object.entries(expectedFiles).filter(([file]) => files.includes(file));

describe(`Apache Parquet's test files${corpusNote}`, () => {
  const processes = startProcesses();
  afterAll(() => processes[Symbol.asyncDispose]());

  test("are all pinned, and of the whole corpus all that are pinned are there", () => {
    expect(
      files.filter((file) => expectedFiles[file] === undefined),
      "add what inspect and run do with them to fixtures/corpora/parquet-testing.expected.json",
    ).toEqual([]);
    expect(
      Object.keys(expectedFiles).filter((file) => corpusIsWhole && !files.includes(file)),
      "gone from the corpus",
    ).toEqual([]);
    expect(files.length).toBeGreaterThan(80);
  });

  // In short, every second file is read, and of the others a column.
  const read = pinned.filter((_, index) => torture || index % 2 === 0);
  test.concurrent.for(read)("%s", { timeout }, async ([file, expected]) => {
    const { inspect, run, rows, faults } = await observe(processes, file, expected);

    expect({ inspect: asPinned(inspect, expected.inspect), run: asPinned(run, expected.run), rows, faults }).toEqual({
      inspect: expected.inspect,
      run: expected.run,
      rows: expected.rows,
      faults: expected.differs ?? [],
    });
  });

  const carried = pinned.filter((_, index) => torture || index % 2 === 1);
  const refused = carried.flatMap(([file, { refused: columns = {} }]) =>
    firstOf(Object.entries(columns)).map(([column, says]) => ({ file, column, says })),
  );

  test.concurrent.for(refused)(
    "$file: a job that carries $column is refused",
    { timeout },
    async ({ file, column, says }) => {
      const { ended, faults } = await carryColumn(processes, file, column);

      const found = { ended: ended !== "read" && asPinned(ended, { ...ended, says }), faults };
      const exit = says.endsWith("is encrypted") ? 65 : 64;
      expect(found).toMatchObject({ ended: { exit, says }, faults: [] });
    },
  );
});
