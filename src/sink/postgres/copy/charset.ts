import { DatabaseError } from "pg";
import type { RejectedRow } from "../../../columnar/types.js";
import type { Connections, Session } from "../connections.js";

/** The characters that a database can hold whose encoding is not UTF-8. */
export interface Charset {
  /** Returns the first character of a text that it cannot hold. Characters that are not known yet go to `unknown`. */
  lacking(text: string, unknown: Set<string>): string | undefined;
  /** Asks the server which of these characters it can hold. */
  learn(unknown: ReadonlySet<string>): Promise<void>;
}

/** Opens the charset of the session's database; undefined: it can hold every text. */
export async function openCharset(session: Session, connections: Connections): Promise<Charset | undefined> {
  const { rows } = await session.query<{ server_encoding: string }>("SHOW server_encoding");
  return ["UTF8", "SQL_ASCII"].includes(rows[0]?.server_encoding ?? "") ? undefined : charsetOf(connections);
}

/** PostgreSQL's error for a character that has no equivalent in the other encoding. */
const untranslatable = "22P05";

function charsetOf(connections: Connections): Charset {
  const known = new Map<string, boolean>();
  // No table of encodings is the server's: of a text that it refuses, each half is tried.
  const ask = async (session: Session, characters: readonly string[]): Promise<void> => {
    const holds = await session.query({ text: "SELECT $1::text", values: [characters.join("")] }).then(
      () => true,
      (error: unknown) => {
        if (error instanceof DatabaseError && error.code === untranslatable) {
          return false;
        }
        throw error;
      },
    );
    if (holds || characters.length === 1) {
      for (const character of characters) {
        known.set(character, holds);
      }
      return;
    }
    const half = characters.length >> 1;
    await ask(session, characters.slice(0, half));
    await ask(session, characters.slice(half));
  };
  return {
    lacking(text, unknown) {
      let lacking: string | undefined;
      for (const character of new Set(text.replaceAll(/\p{ASCII}/gu, ""))) {
        const holds = known.get(character);
        if (holds === undefined) {
          unknown.add(character);
        } else if (!holds) {
          lacking ??= character;
        }
      }
      return lacking;
    },
    learn: (unknown) => connections.use((session) => ask(session, [...unknown])),
  };
}

/** Calls `work` until it meets no character that is not known. */
export async function knowing<T>(charset: Charset, work: (unknown: Set<string>) => T): Promise<T> {
  for (;;) {
    const unknown = new Set<string>();
    const result = work(unknown);
    if (unknown.size === 0) {
      return result;
    }
    await charset.learn(unknown);
  }
}

/** Rejected rows with each character that the database cannot hold as its number: `\u65e5`. */
export async function storableRejects(
  charset: Charset,
  rejects: readonly RejectedRow[],
): Promise<readonly RejectedRow[]> {
  return await knowing(charset, (unknown) => {
    const storable = (text: string): string =>
      text
        .replaceAll("\u0000", "\u2400")
        .replaceAll(/\P{ASCII}/gu, (character) =>
          charset.lacking(character, unknown) === undefined
            ? character
            : `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`,
        );
    return rejects.map((row) => ({
      ...row,
      value: row.value === null ? null : storable(row.value),
      columns: Object.fromEntries(
        Object.entries(row.columns).map(([name, text]) => [name, text === null ? null : storable(text)]),
      ),
    }));
  });
}
