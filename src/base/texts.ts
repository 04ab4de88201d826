import { isRecord } from "./guards.js";

/**
 * Characters that a terminal or viewer interprets instead of showing: control characters (C0, DEL, C1), marks that
 * change the direction of text (https://www.unicode.org/reports/tr9/), line and paragraph separators, and lone
 * surrogates.
 */
const obeyed = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}]/gu;
const obeyedButNewline = /(?!\n)[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** Escapes a text from a file, a model or a table to one printable line: "a\nb" becomes `a\x0ab`. */
export function printable(text: string): string {
  return text.replaceAll(obeyed, codeOf);
}

/** Escapes a text of several lines. JSON is not changed by it: it has none of the characters that become `\x…`. */
export function printableLines(text: string): string {
  return text.replaceAll(obeyedButNewline, codeOf);
}

function codeOf(character: string): string {
  const code = character.charCodeAt(0);
  return code < 0x20 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Quotes a text so that a POSIX shell takes it as one word. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** The text in bytes, without a byte order mark. Other decoders put U+FFFD in place of bytes that are no UTF-8. @throws TypeError */
export function strictText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** A time of day: 06:00. Two of them compare as texts. */
export const timeOfDay = /^([01]\d|2[0-3]):[0-5]\d$/;

/** JSON, in which integers of 64 bits keep all digits. @param plain what stands for a value, such as one that JSON does not have */
export function jsonText(value: unknown, plain: (value: unknown) => unknown = (same) => same): string {
  const shown = plain(value);
  if (typeof shown === "bigint") {
    return String(shown);
  }
  if (Array.isArray(shown)) {
    return `[${shown.map((each) => jsonText(each, plain)).join(",")}]`;
  }
  if (isRecord(shown)) {
    const pairs = Object.entries(shown).filter(([, each]) => each !== undefined);
    return `{${pairs.map(([name, each]) => `${JSON.stringify(name)}:${jsonText(each, plain)}`).join(",")}}`;
  }
  return JSON.stringify(shown);
}
