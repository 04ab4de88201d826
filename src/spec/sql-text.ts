/** The context of a position in SQL: `code`, where a literal is allowed, or why none is. */
export type SqlPlace = "code" | "quoted" | "commented" | "attached";

/**
 * The tokens of SQL that decide where a literal may be. Text that DuckDB would read differently must not count as
 * `code`.
 */
const tokens: readonly (readonly [kind: "comment" | "literal" | "name" | "other", pattern: RegExp])[] = [
  ["comment", /--[^\n\r]*[\n\r]/y],
  ["literal", /[eE]'(?:[^'\\]|\\.|'')*'/sy],
  ["literal", /'(?:[^']|'')*'/y],
  ["literal", /\$([A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$.*?\$\1\$/sy],
  // A reference that is filled in before this one.
  ["literal", /\$\{[^}]*\}/y],
  ["name", /"(?:[^"]|"")*"/y],
  ["name", /(?![eE]')[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y],
  ["other", /\s+/y],
];

/** Starts of what has no end before the place. */
const open = { comment: /--|\/\*/y, quote: /[eE]?'|"|\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$/y };

/** The place right after `before`, the beginning of an expression, when `after` follows it. */
export function sqlPlaceAfter(before: string, after: string): SqlPlace {
  let isAfterLiteral = false;
  for (let at = 0; at < before.length; ) {
    const comment = endOfComment(before, at);
    const token = comment === undefined ? tokenAt(before, at) : { kind: "comment" as const, end: comment };
    if (token === undefined) {
      if (matches(open.comment, before, at)) {
        return "commented";
      }
      if (matches(open.quote, before, at)) {
        return "quoted";
      }
    }
    const end = token?.end ?? at + 1;
    // Literals are continued by the next one after blanks and comments, in the way of the first.
    if (token?.kind !== "comment" && before.slice(at, end).trim() !== "") {
      isAfterLiteral = token?.kind === "literal";
    }
    at = end;
  }
  // `e'…'` is another kind of literal than '…', and `'a''b'` is one.
  const isAttached = /[\w$&\u0080-\uffff]$/.test(before) || isLiteralNext(after);
  return isAfterLiteral || isAttached ? "attached" : "code";
}

/** After blanks and comments, in the way of `'a'` newline `'b'`, which is one literal. */
function isLiteralNext(after: string): boolean {
  let at = 0;
  for (;;) {
    const comment = endOfComment(after, at);
    const blank = comment === undefined ? /(?:\s|--[^\n\r]*(?:[\n\r]|$))+/y : undefined;
    if (comment !== undefined) {
      at = comment;
    } else if (blank !== undefined && matches(blank, after, at)) {
      at = blank.lastIndex;
    } else {
      return after.startsWith("'", at);
    }
  }
}

function tokenAt(text: string, at: number): { kind: (typeof tokens)[number][0]; end: number } | undefined {
  for (const [kind, pattern] of tokens) {
    pattern.lastIndex = at;
    if (pattern.test(text)) {
      return { kind, end: pattern.lastIndex };
    }
  }
  return undefined;
}

function matches(pattern: RegExp, text: string, at: number): boolean {
  pattern.lastIndex = at;
  return pattern.test(text);
}

/** Comments of this kind can be nested. */
function endOfComment(text: string, start: number): number | undefined {
  if (!text.startsWith("/*", start)) {
    return undefined;
  }
  let depth = 1;
  for (let at = start + 2; at < text.length; ) {
    const pair = text.slice(at, at + 2);
    if (pair === "/*" || pair === "*/") {
      depth += pair === "/*" ? 1 : -1;
      at += 2;
      if (depth === 0) {
        return at;
      }
    } else {
      at += 1;
    }
  }
  return undefined;
}
