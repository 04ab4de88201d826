import { createHash, type Hash } from "node:crypto";
import type { TokenCount } from "../../paid-engine.js";
import type { AskedPrompt, PromptTask } from "../request.js";

/** What a file may have: https://platform.openai.com/docs/guides/batch */
export interface FileLimits {
  requests: number;
  readonly bytes: number;
}

export const fileLimits: Readonly<FileLimits> = { requests: 50_000, bytes: 200_000_000 };

/** A request of a file. */
export interface FiledRequest {
  /** Names the request in the answers: the key under which its answer is kept. */
  readonly key: string;
  readonly line: Buffer<ArrayBuffer>;
  /** The most tokens that it takes. */
  readonly worst: TokenCount;
}

/** A file of requests that becomes a batch. */
export interface InputFile {
  readonly requests: readonly FiledRequest[];
  readonly bytes: number;
  has(key: string): boolean;
  /** Whether a request fits, too. One alone always does. */
  fits(line: Uint8Array, limits: Readonly<FileLimits>): boolean;
  add(request: FiledRequest): void;
  /** Hex SHA-256 of the bytes so far. Equal rows without answers make equal files. */
  digest(): string;
}

export function createInputFile(given: readonly FiledRequest[] = []): InputFile {
  const requests: FiledRequest[] = [];
  const keys = new Set<string>();
  const hash: Hash = createHash("sha256");
  let bytes = 0;
  const file: InputFile = {
    requests,
    get bytes() {
      return bytes;
    },
    has: (key) => keys.has(key),
    fits: (line, limits) =>
      requests.length === 0 || (requests.length < limits.requests && bytes + line.length <= limits.bytes),
    add(request) {
      requests.push(request);
      keys.add(request.key);
      hash.update(request.line);
      bytes += request.line.length;
    },
    digest: () => hash.copy().digest("hex"),
  };
  for (const request of given) {
    file.add(request);
  }
  return file;
}

/** The path of requests, as files and batches name it. It does not contain the server's own base path. */
export function endpointOf(kind: PromptTask["kind"]): string {
  return kind === "embedding" ? "/v1/embeddings" : "/v1/chat/completions";
}

/** The line of a request in a file. */
export function lineOf(key: string, kind: PromptTask["kind"], { body }: AskedPrompt): Buffer<ArrayBuffer> {
  const begin = `{"custom_id":"${key}","method":"POST","url":"${endpointOf(kind)}","body":`;
  return Buffer.concat([Buffer.from(begin), body, Buffer.from("}\n")]);
}

/** The name of a request in a line of a file; undefined: it has none. */
export function keyIn(line: string): string | undefined {
  return /^\{"custom_id":"([0-9a-f]{64})"/.exec(line)?.[1];
}

/** The most tokens that the requests of a file take together. */
export function worstOf({ requests }: Pick<InputFile, "requests">): TokenCount {
  return {
    prompt: requests.reduce((sum, { worst }) => sum + worst.prompt, 0),
    cached: 0,
    completion: requests.reduce((sum, { worst }) => sum + worst.completion, 0),
  };
}
