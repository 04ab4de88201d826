/** INFER_BATCH_TORTURE=1 (`npm run torture`): the long form of tests that have one. */
export const torture = process.env["INFER_BATCH_TORTURE"] === "1";

/** Of cases that try the same in several modes, the short form tries the first few, and the long form all. */
export function firstOf<T>(cases: readonly T[], count = 1): readonly T[] {
  return torture ? cases : cases.slice(0, count);
}

/**
 * What the short form tries of a run's calls: of those that differ in their numbers only, as the calls of one span
 * and of the next do, the first two and the last; `ends`: the first and the last. The long form tries all.
 */
export function tellingCalls<T>(
  calls: readonly T[],
  nameOf: (call: T) => string,
  { ends = false }: { readonly ends?: boolean } = {},
): T[] {
  const kinds = new Map<string, T[]>();
  for (const call of calls) {
    const kind = nameOf(call).replaceAll(/\d+/g, "#");
    const alike = kinds.get(kind);
    if (alike === undefined) {
      kinds.set(kind, [call]);
    } else {
      alike.push(call);
    }
  }
  const telling = new Set([...kinds.values()].flatMap((alike) => alike.slice(0, ends ? 1 : 2).concat(alike.slice(-1))));
  return calls.filter((call) => torture || telling.has(call));
}
