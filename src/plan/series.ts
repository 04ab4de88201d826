type Params = Readonly<Record<string, string>>;

/** A calendar date, month, ISO week or timestamp: 2026-11-23, 20261123, 2026-11, 2026-W48, 2026-11-23T02:00. */
const dateText = /^\d{4}(-?W\d{2}|([-/.]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01])([T _].*)?)?)$/;

/**
 * Whether two runs of a job are nights of one series: their params are equal, except those that are dates in both.
 * A run for region=EU does not write the rows of one for region=US; yesterday's run writes those of today's.
 */
export function sameSeries(one: Params, other: Params): boolean {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => {
    const [a, b] = [one[name], other[name]];
    return a === b || (a !== undefined && b !== undefined && dateText.test(a) && dateText.test(b));
  });
}
