import { infiniteDay, isInfinite } from "../../../columnar/dates-and-times.js";

/** DuckDB counts days and microseconds from 1970, Postgres from 2000. */
export const daysTo2000 = 10_957;
export const microsTo2000 = 946_684_800_000_000n;

/** 4713-11-24 BC, the first day that Postgres has, and the days after its last, 5874897-12-31, from 2000. */
const firstDay = -2_451_545;
const endDay = 2_145_031_949;
/** The same for timestamps, which end with the year 294276. */
const firstMicros = -211_813_488_000_000_000n;
const endMicros = 9_223_371_331_200_000_000n;

/** Whether Postgres has the day that is this many after 1970-01-01. */
export function hasDay(day: number): boolean {
  return Math.abs(day) === infiniteDay || (day - daysTo2000 >= firstDay && day - daysTo2000 < endDay);
}

/** Whether Postgres has the moment that is this many microseconds after 1970-01-01. */
export function hasMoment(micros: bigint): boolean {
  const since2000 = micros - microsTo2000;
  return isInfinite(micros) || (since2000 >= firstMicros && since2000 < endMicros);
}
