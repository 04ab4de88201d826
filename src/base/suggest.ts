import { closest, distance } from "fastest-levenshtein";

function nearest(word: string, known: readonly string[]): string | undefined {
  if (known.length === 0) {
    return undefined;
  }
  const best = closest(
    word.toLowerCase(),
    known.map((name) => name.toLowerCase()),
  );
  const near = known.find((name) => name.toLowerCase() === best);
  const limit = word.length < 4 ? 1 : Math.max(2, Math.floor(word.length / 3)); // swapped letters count as 2
  return near !== undefined && distance(word.toLowerCase(), best) <= limit ? near : longerName(word, known);
}

/** Finds parcel_id for parcel. */
function longerName(word: string, known: readonly string[]): string | undefined {
  const [longer, ...more] = known.filter((name) => name.toLowerCase().startsWith(`${word.toLowerCase()}_`));
  return more.length === 0 ? longer : undefined;
}

/** Returns "; did you mean `path`?", or an empty text. */
export function didYouMean(word: string, known: readonly string[]): string {
  const meant = nearest(word, known);
  return meant === undefined ? "" : `; did you mean \`${meant}\`?`;
}
