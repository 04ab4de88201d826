import { HTTPParser } from "http-parser-js";
import type { Connection } from "./connections.js";
import { BrokenTransfer } from "./failures.js";

export interface Answer {
  readonly status: number;
  /** Names in small letters. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where it was not taken. */
  readonly body: Buffer;
}

export interface Exchange {
  /** The request, which has no body. */
  readonly text: string;
  /**
   * Called when the answer's headers are there; takes its body, piece after piece. A piece holds until it returns.
   * undefined: the body is short, and collected. What it throws ends the exchange.
   */
  readonly begin: (answer: Omit<Answer, "body">) => ((piece: Uint8Array) => void) | undefined;
  /** Called whenever something comes. */
  readonly heard: () => void;
  /** Ends it with its reason. */
  readonly signal: AbortSignal;
}

/** Of a body that is collected: what stores say of errors is short. */
const collectedBytes = 1024 * 1024;

/** Nothing of an answer came over a connection that was used before: the peer had closed it. */
export class StaleConnection extends Error {}

/**
 * One request and its answer.
 * @throws BrokenTransfer, StaleConnection, what the socket says, what `begin` and the taking of the body throw
 */
export async function exchange(connection: Connection, { text, begin, heard, signal }: Exchange): Promise<Answer> {
  return await new Promise<Answer>((resolve, reject) => {
    let anything = false;
    const end = (): void => {
      signal.removeEventListener("abort", stop);
    };
    const fail = (error: unknown): void => {
      end();
      connection.destroy();
      reject(error instanceof Error ? error : new Error(String(error)));
    };
    const stop = (): void => {
      fail(signal.reason);
    };
    const answer = readAnswer(begin, (found, again) => {
      end();
      if (again) {
        connection.keep();
      } else {
        connection.destroy();
      }
      resolve(found);
    });
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) {
      stop();
      return;
    }
    connection.send(text, {
      heard(bytes) {
        anything = true;
        heard();
        try {
          answer.read(bytes);
        } catch (error) {
          fail(error);
        }
      },
      lost(error) {
        if (!anything && connection.used) {
          fail(new StaleConnection("the connection was closed while it was idle", { cause: error }));
        } else if (error !== undefined || !answer.isWhole()) {
          fail(error ?? connectionLost());
        }
      },
    });
  });
}

function connectionLost(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}

interface AnswerReader {
  /** @throws BrokenTransfer, what the taker throws */
  read(bytes: Buffer): void;
  /** The connection has ended: whether the answer had, too. */
  isWhole(): boolean;
}

/** `onEnd`: called when the answer is whole; `again`: another one may follow. */
function readAnswer(begin: Exchange["begin"], onEnd: (answer: Answer, again: boolean) => void): AnswerReader {
  const parser = new HTTPParser(HTTPParser.RESPONSE);
  let head: Omit<Answer, "body"> = { status: 0, headers: {} };
  let keepAlive = false;
  let whole = false;
  /** Where the last piece of a body ends in memory: behind it there must be nothing, or what is it an answer to? */
  let bodyEnd = -1;
  const { collect, body } = createCollector();
  let take = collect;
  parser[HTTPParser.kOnHeadersComplete] = ({ statusCode, headers, shouldKeepAlive }) => {
    if (!whole) {
      head = { status: statusCode, headers: headersOf(headers) };
      keepAlive = shouldKeepAlive;
      take = (statusCode < 200 ? undefined : begin(head)) ?? collect;
    }
  };
  parser[HTTPParser.kOnBody] = (chunk, offset, length) => {
    const piece = chunk.subarray(offset, offset + length);
    if (!whole) {
      bodyEnd = piece.byteOffset + piece.length;
      take(piece);
    }
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    whole ||= head.status >= 200; // others only say that the answer is to come
  };
  return {
    read(bytes) {
      bodyEnd = -1;
      const read = parser.execute(bytes);
      if (whole) {
        onEnd({ ...head, body: body() }, keepAlive && bodyEnd === bytes.byteOffset + bytes.length);
      } else if (typeof read !== "number" || !/^\d*$/.test(head.headers["content-length"] ?? "")) {
        throw new BrokenTransfer("the store's answer is no HTTP");
      }
    },
    isWhole() {
      parser.finish();
      if (whole) {
        onEnd({ ...head, body: body() }, false);
      }
      return whole;
    },
  };
}

/** Keeps the beginning of a body. */
function createCollector(): { readonly collect: (piece: Uint8Array) => void; readonly body: () => Buffer } {
  const collected: Buffer[] = [];
  let left = collectedBytes;
  return {
    collect(piece) {
      collected.push(Buffer.from(piece.subarray(0, Math.max(0, left))));
      left -= piece.length;
    },
    body: () => Buffer.concat(collected),
  };
}

function headersOf(pairs: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let index = 0; index < pairs.length; index += 2) {
    headers[(pairs[index] ?? "").toLowerCase()] = pairs[index + 1] ?? "";
  }
  return headers;
}
