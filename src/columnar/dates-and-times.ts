/** DuckDB's infinite date. DuckDB stores infinity as the largest value, and minus infinity as its negation. */
export const infiniteDay = 0x7fff_ffff;
export const infiniteMicros = 0x7fff_ffff_ffff_ffffn;

export function isInfinite(micros: bigint): boolean {
  return micros === infiniteMicros || micros === -infiniteMicros;
}

/** Converts nanoseconds to microseconds, rounded down, as a clock does. */
export function floorThousands(nanos: bigint): bigint {
  const micros = nanos / 1000n;
  return nanos % 1000n < 0n ? micros - 1n : micros;
}

/**
 * Returns a date as text: "2026-01-31", with more digits for years after 9999. Years before 1 are written as in ISO
 * 8601.
 */
export function dateText(day: number): string {
  // http://howardhinnant.github.io/date_algorithms.html#civil_from_days
  const shifted = day + 719_468;
  const era = Math.floor(shifted / 146_097);
  const ofEra = shifted - era * 146_097;
  const yearOfEra = Math.floor(
    (ofEra - Math.floor(ofEra / 1460) + Math.floor(ofEra / 36_524) - Math.floor(ofEra / 146_096)) / 365,
  );
  const ofYear = ofEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const shiftedMonth = Math.floor((5 * ofYear + 2) / 153);
  const dayOfMonth = ofYear - Math.floor((153 * shiftedMonth + 2) / 5) + 1;
  const month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  const sign = year < 0 ? "-" : "";
  return `${sign}${pad(Math.abs(year), 4)}-${pad(month, 2)}-${pad(dayOfMonth, 2)}`;
}

/** The microseconds of a day; a time may be 24:00:00. */
export const microsPerDay = 86_400_000_000n;

/** "12:34:56.789012"; the fraction only where there is one. What is no time of a day is a number with its unit. */
export function timeText(micros: bigint): string {
  if (micros < 0n || micros > microsPerDay) {
    return `${micros} microseconds`;
  }
  const seconds = Number(micros / 1_000_000n);
  const fraction = Number(micros % 1_000_000n);
  const clock = `${pad(Math.floor(seconds / 3600), 2)}:${pad(Math.floor(seconds / 60) % 60, 2)}:${pad(seconds % 60, 2)}`;
  return fraction === 0 ? clock : `${clock}.${pad(fraction, 6).replace(/0+$/, "")}`;
}

/** Adds the nanoseconds below a microsecond, 0 to 999, to a text that ends in a time of day in microseconds. */
export function withNanos(text: string, nanos: bigint): string {
  if (nanos === 0n || !/\d$/.test(text)) {
    return text;
  }
  const [clock = "", fraction = ""] = text.split(".");
  return `${clock}.${fraction.padEnd(6, "0")}${String(nanos).padStart(3, "0")}`;
}

/** Returns a timestamp as text: "2026-01-31T12:34:56", or "infinity". */
export function momentText(micros: bigint): string {
  if (isInfinite(micros)) {
    return micros > 0n ? "infinity" : "-infinity";
  }
  const inDay = ((micros % microsPerDay) + microsPerDay) % microsPerDay;
  return `${dateText(Number((micros - inDay) / microsPerDay))}T${timeText(inDay)}`;
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, "0");
}
