import { infiniteDay, infiniteMicros } from "../../columnar/dates-and-times.js";
import type { ColumnType } from "../../columnar/types.js";
import { createDifferentRows, type DifferentRow } from "./different-rows.js";
import { exactReader } from "./exact-values.js";
import { numberAt, type PredictionPair, textsAt } from "./prediction-pair.js";

/** How two columns of dates or times agree. */
export interface TimeAgreement {
  readonly kind: "times";
  readonly equal: number;
  /** By how much two finite values differ at most, in seconds; 0: none do. */
  readonly largestShift: number;
}

interface TimeType {
  /** Columns of the same family can be compared. */
  readonly family: string;
  readonly nanosPerUnit: bigint;
  /** The value that is stored for infinity, and negated for minus infinity; absent: there is none. */
  readonly infinity?: bigint;
}

const timeTypes: Readonly<Record<string, TimeType>> = {
  date32: { family: "dates", nanosPerUnit: 86_400_000_000_000n, infinity: BigInt(infiniteDay) },
  "time64[us]": { family: "times of day", nanosPerUnit: 1000n },
  "time64[ns]": { family: "times of day", nanosPerUnit: 1n },
  "timestamp[us]": { family: "timestamps", nanosPerUnit: 1000n, infinity: infiniteMicros },
  "timestamp[ns]": { family: "timestamps", nanosPerUnit: 1n },
  "timestamp[us, UTC]": { family: "instants", nanosPerUnit: 1000n, infinity: infiniteMicros },
};

/** Which dates or times a type is of; undefined for other types. */
export function timeFamily(type: ColumnType): string | undefined {
  return typeOf(type)?.family;
}

function typeOf(type: ColumnType): TimeType | undefined {
  return typeof type === "string" ? timeTypes[type] : undefined;
}

/** Compares two columns of dates, of timestamps or of times, whose units may differ. NULL equals NULL only. */
export function compareTimes({
  rowNumbers,
  one,
  other,
}: PredictionPair): TimeAgreement & { readonly most: readonly DifferentRow[] } {
  const [readOne, readOther] = [timeReader(one), timeReader(other)];
  const most = createDifferentRows();
  let [equal, largestShift] = [0, 0];
  for (let row = 0; row < rowNumbers.length; row += 1) {
    const shift = shiftOf(readOne(row), readOther(row));
    if (shift === 0) {
      equal += 1;
      continue;
    }
    largestShift = Number.isFinite(shift) ? Math.max(largestShift, shift) : largestShift;
    const number = numberAt(rowNumbers, row);
    if (most.takes(number, shift)) {
      most.add({ row: number, distance: shift, ...textsAt({ one, other }, row) });
    }
  }
  return { kind: "times", equal, largestShift, most: most.rows };
}

type Moment = bigint | "infinity" | "-infinity" | undefined;

/** Reads a value in nanoseconds. */
function timeReader(column: PredictionPair["one"]): (row: number) => Moment {
  const { nanosPerUnit, infinity } = typeOf(column.type) ?? { nanosPerUnit: 1n };
  const read = exactReader(column, 1n);
  return (row) => {
    const value = read(row);
    if (value === undefined) {
      return undefined;
    }
    if (infinity !== undefined && (value === infinity || value === -infinity)) {
      return value > 0n ? "infinity" : "-infinity";
    }
    return value * nanosPerUnit;
  };
}

/** The seconds between both; infinite if only one of them is a finite moment, or if both are infinities that differ. */
function shiftOf(one: Moment, other: Moment): number {
  if (typeof one !== "bigint" || typeof other !== "bigint") {
    return one === other ? 0 : Number.POSITIVE_INFINITY;
  }
  return Number(one < other ? other - one : one - other) / 1e9;
}
