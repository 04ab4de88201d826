import type { KeptAnswer } from "../ledger.js";
import { sha256Of } from "../../util/sha256.js";

/** Hex digits of the checksum of a record. */
const checksumDigits = 16;

/** A record is a line: the checksum of the rest, a space, the request's digest, a space, and the answer's JSON. */
const recordPattern = /^([0-9a-f]{16}) (([0-9a-f]{64}) (.+))$/s;

/** The line of an answer in a file of the journal. */
function recordOf({ request, answer }: KeptAnswer): string {
  // JSON has line ends only between its values, where they mean nothing.
  const content = `${request} ${answer.replaceAll(/[\r\n]+/g, " ")}`;
  return `${checksumOf(content)} ${content}\n`;
}

/** Yields the answers of a file of the log. Leaves out lines that are torn or damaged. */
export function* answersIn(text: string): Generator<KeptAnswer> {
  for (let start = 0, end = text.indexOf("\n"); end >= 0; start = end + 1, end = text.indexOf("\n", start)) {
    const [, checksum, content = "", request = "", answer = ""] = recordPattern.exec(text.slice(start, end)) ?? [];
    if (checksum !== undefined && checksum === checksumOf(content)) {
      yield { request, answer };
    }
  }
}

function checksumOf(content: string): string {
  return sha256Of(content).slice(0, checksumDigits);
}

/** Divides the lines of answers into texts of at most `maxBytes`, but at least one line each. */
export function* textsOf(answers: readonly KeptAnswer[], maxBytes: number): Generator<string> {
  let lines: string[] = [];
  let bytes = 0;
  for (const answer of answers) {
    const line = recordOf(answer);
    const lineBytes = Buffer.byteLength(line);
    if (lines.length > 0 && bytes + lineBytes > maxBytes) {
      yield lines.join("");
      lines = [];
      bytes = 0;
    }
    lines.push(line);
    bytes += lineBytes;
  }
  if (lines.length > 0) {
    yield lines.join("");
  }
}
