import { type Agreement, compareRows } from "../../checks/agreement/agreement.js";
import type { DifferentRow } from "../../checks/agreement/different-rows.js";
import {
  type AgreementPlan,
  type MissedReason,
  missedRows,
  type SpanAgreement,
} from "../../checks/agreement/span-agreement.js";
import { filterColumn } from "../../columnar/column-builder.js";
import { jsonOf } from "../../columnar/json-text.js";
import type { NamedColumn, OutputRows } from "../../columnar/types.js";
import type { RowNumbers } from "../../checks/agreement/prediction-pair.js";
import type { ChallengedRows } from "./challenged-rows.js";
import type { ChampionRows, KeptPiece } from "./port.js";

interface Compared {
  readonly champion: ChampionRows;
  /** The rows of `champion` that are in the output. */
  readonly output: OutputRows;
  readonly rows: ChallengedRows;
}

interface ComparedRows {
  readonly agreement: SpanAgreement;
  /** The challenger's predictions; undefined: it was not running. */
  readonly kept: KeptPiece | undefined;
}

/** Compares the predictions of both models for the rows of the output that the challenger could score. */
export async function compareOutputs(
  { agreement: plan, keys }: { readonly agreement: AgreementPlan; readonly keys: readonly string[] },
  { champion, output, rows }: Compared,
): Promise<ComparedRows> {
  await rows.ended();
  if (!rows.isWhole) {
    return { agreement: notRunning(output), kept: undefined };
  }
  const { rowNumbers, places, missed } = commonRows(champion, output, rows);
  const compared = output.columns.filter(({ name }) => plan.compared.includes(name));
  const taken = (columns: readonly NamedColumn[]): readonly NamedColumn[] =>
    places === undefined ? columns : takePlaces(columns, output.rowCount, places);
  const ours = taken(compared);
  const theirs = rows.finish(champion.keptRows).columns;
  const columns = compareRows({ rowNumbers, one: ours, other: theirs }, plan);
  const agreement = {
    compared: rowNumbers.length,
    missed,
    columns: withKeys(columns, { keys, output, rowNumbers, places }),
  };
  const copied = output.columns.filter(({ name }) => !champion.predicted.has(name));
  return {
    agreement,
    kept: {
      isLast: champion.isLast,
      rows: { rowCount: rowNumbers.length, columns: [...taken(copied), ...theirs] },
      leftOut: leftOut(champion, output, missed),
    },
  };
}

/** Counts the rows that came and are not kept, each by its own reason, so that a row that is lost is not among them. */
function leftOut(
  { readRows, keptRows }: ChampionRows,
  { rowCount }: OutputRows,
  missed: ReadonlyMap<MissedReason, number>,
): number {
  const [filtered, rejected] = [readRows - keptRows, keptRows - rowCount];
  return [...missed.values()].reduce((sum, rows) => sum + rows, filtered + rejected);
}

/** Rows that a challenger did not score because it was not running. */
export function notRunning({ rowCount }: Pick<OutputRows, "rowCount">): SpanAgreement {
  return missedRows(rowCount === 0 ? new Map() : new Map([["not_running", rowCount]]));
}

interface CommonRows {
  /** The numbers of the rows that both models scored. */
  readonly rowNumbers: RowNumbers;
  /** The index in the output of each of them; undefined: they are all rows of the output. */
  readonly places: Uint32Array | undefined;
  readonly missed: ReadonlyMap<MissedReason, number>;
}

/** Finds the rows that both models scored; of the challenger's, all others are left out. */
function commonRows(
  { piece, keptRows, isInOutput, rowInRun }: ChampionRows,
  { rowCount }: OutputRows,
  rows: ChallengedRows,
): CommonRows {
  const missed = new Map<MissedReason, number>();
  if (rows.isComplete && rowCount === keptRows) {
    return { rowNumbers: numbersOf(piece.rowStart, keptRows, rowInRun), places: undefined, missed };
  }
  const rowNumbers = new Float64Array(rowCount);
  const places = new Uint32Array(rowCount);
  let [place, count] = [0, 0];
  for (let at = 0; at < keptRows; at += 1) {
    const row = piece.rowStart + at;
    const reason = rows.missed(row);
    const isThere = isInOutput(row);
    if (isThere && reason === undefined) {
      rowNumbers[count] = rowInRun(row);
      places[count] = place;
      count += 1;
    } else {
      rows.leaveOut(row);
    }
    if (isThere && reason !== undefined) {
      missed.set(reason, (missed.get(reason) ?? 0) + 1);
    }
    place += isThere ? 1 : 0;
  }
  return { rowNumbers: rowNumbers.subarray(0, count), places: places.subarray(0, count), missed };
}

/** The run's numbers of kept rows. */
function numbersOf(rowStart: number, length: number, rowInRun: ChampionRows["rowInRun"]): RowNumbers {
  const first = length === 0 ? 0 : rowInRun(rowStart);
  return length === 0 || rowInRun(rowStart + length - 1) === first + length - 1
    ? { first, length } // no row was filtered out in between, as a rule
    : Float64Array.from({ length }, (_row, index) => rowInRun(rowStart + index));
}

/** The rows of columns at these places. */
function takePlaces(columns: readonly NamedColumn[], rowCount: number, places: Uint32Array): NamedColumn[] {
  const flags = new Uint8Array(rowCount);
  for (const place of places) {
    flags[place] = 1;
  }
  return columns.map(({ name, type, column }) => ({ name, type, column: filterColumn(type, column, flags) }));
}

interface KeyedRows extends Pick<CommonRows, "rowNumbers" | "places"> {
  readonly keys: readonly string[];
  readonly output: OutputRows;
}

/** Adds the values of key columns to the rows that differ most. */
function withKeys(agreement: Agreement, rows: KeyedRows): Agreement {
  const columns = rows.output.columns.filter(({ name }) => rows.keys.includes(name));
  return columns.length === 0
    ? agreement
    : new Map(
        [...agreement].map(([name, column]) => {
          const most = column.most.map((row): DifferentRow => ({ ...row, keys: keysOf(row.row, columns, rows) }));
          return [name, { ...column, most }] as const;
        }),
      );
}

/** Characters of a value that are shown. */
const longestKey = 60;

function keysOf(row: number, columns: readonly NamedColumn[], { rowNumbers, places }: KeyedRows): DifferentRow["keys"] {
  const index = rowNumbers instanceof Float64Array ? rowNumbers.indexOf(row) : row - rowNumbers.first;
  const place = places === undefined ? index : (places[index] as number);
  return Object.fromEntries(
    columns.map(({ name, type, column }) => {
      const json = jsonOf(type, column, place);
      const text = json.startsWith('"') ? String(JSON.parse(json)) : json;
      return [name, text.length > longestKey ? `${text.slice(0, longestKey - 1)}…` : text];
    }),
  );
}
