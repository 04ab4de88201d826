import stringWidth from "fast-string-width";

/**
 * The columns of a terminal that a printable text occupies: two for each character that is wide or fullwidth in Unicode's
 * East Asian Width (https://www.unicode.org/reports/tr11/) and for an emoji, none for a combining mark.
 */
export function displayWidth(text: string): number {
  return stringWidth(text.normalize("NFC")); // a Hangul syllable of several letters is one character
}

/** Fills a text with spaces to `width` columns of a terminal. */
export function padToWidth(text: string, width: number, side: "left" | "right"): string {
  const spaces = " ".repeat(Math.max(0, width - displayWidth(text)));
  return side === "left" ? `${spaces}${text}` : `${text}${spaces}`;
}

/** Returns the text, or its beginning and an ellipsis if it is wider than `width` columns of a terminal. */
export function cutToWidth(text: string, width: number): string {
  return displayWidth(text) <= width ? text : `${pieces(text, width - 1)[0] ?? ""}…`;
}

/** Breaks a text into lines of at most `width` columns of a terminal, between words where it can. */
export function wrapToWidth(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const [, space = "", word = ""] of text.matchAll(/(\s*)(\S+)/gu)) {
    const longer = line === "" ? word : `${line}${space}${word}`;
    if (displayWidth(longer) <= width) {
      line = longer;
      continue;
    }
    const parts = pieces(word, width);
    lines.push(...[line].filter((full) => full !== ""), ...parts.slice(0, -1));
    line = parts.at(-1) ?? "";
  }
  return line === "" ? lines : [...lines, line];
}

function pieces(text: string, width: number): string[] {
  const complete: string[] = [];
  let piece = "";
  let occupied = 0;
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    const more = displayWidth(segment);
    if (piece !== "" && occupied + more > width) {
      complete.push(piece);
      piece = "";
      occupied = 0;
    }
    piece += segment;
    occupied += more;
  }
  return [...complete, piece];
}
