type Params = Readonly<Record<string, string>>;

/** A calendar date, month, ISO week or timestamp: 2026-11-23, 20261123, 2026-11, 2026-W48, 2026-11-23T02:00. */
const dateText = /^\d{4}(-?W\d{2}|([-/.]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01])([T _].*)?)?)$/;

/**
 * Whether two runs of a job belong to one series: all params are equal, except those that are dates in both. Runs of one
 * series write the same rows, such as yesterday's and today's; region=EU and region=US do not.
 */
export function sameSeries(one: Params, other: Params): boolean {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => {
    const [a, b] = [one[name], other[name]];
    return a === b || (a !== undefined && b !== undefined && isDateText(a) && isDateText(b));
  });
}

/** Whether two runs have the same params. */
export function sameParams(one: Params, other: Params): boolean {
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].every((name) => one[name] === other[name]);
}

/** Whether a text is a calendar date, a month, an ISO week or a timestamp. */
export function isDateText(given: string): boolean {
  return dateText.test(given);
}

/** Whether a text is a calendar date, "2026-11-23". */
export function isCalendarDate(given: string): boolean {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(given) ? Date.parse(`${given}T00:00:00Z`) : Number.NaN;
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(given);
}
