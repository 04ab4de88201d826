import { closest, distance } from "fastest-levenshtein";

/** The known name that `word` was probably meant to be, or undefined when none is near. */
function nearest(word: string, known: readonly string[]): string | undefined {
  if (known.length === 0) {
    return undefined;
  }
  const best = closest(
    word.toLowerCase(),
    known.map((name) => name.toLowerCase()),
  );
  const found = known.find((name) => name.toLowerCase() === best);
  const limit = word.length < 4 ? 1 : Math.max(2, Math.floor(word.length / 3)); // a swap of letters counts 2
  return found !== undefined && distance(word.toLowerCase(), best) <= limit ? found : undefined;
}

/** "; did you mean `path`?" or nothing. */
export function didYouMean(word: string, known: readonly string[]): string {
  const found = nearest(word, known);
  return found === undefined ? "" : `; did you mean \`${found}\`?`;
}
