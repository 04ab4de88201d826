import { closest, distance } from "fastest-levenshtein";

/** Returns the known name that is nearest to `word`, or undefined if none is near. */
function nearest(word: string, known: readonly string[]): string | undefined {
  if (known.length === 0) {
    return undefined;
  }
  const best = closest(
    word.toLowerCase(),
    known.map((name) => name.toLowerCase()),
  );
  const found = known.find((name) => name.toLowerCase() === best);
  const limit = word.length < 4 ? 1 : Math.max(2, Math.floor(word.length / 3)); // swapped letters count as 2
  return found !== undefined && distance(word.toLowerCase(), best) <= limit ? found : undefined;
}

/** Returns "; did you mean `path`?", or an empty text. */
export function didYouMean(word: string, known: readonly string[]): string {
  const found = nearest(word, known);
  return found === undefined ? "" : `; did you mean \`${found}\`?`;
}
