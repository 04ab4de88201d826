import { sha256Of } from "../../util/sha256.js";
import { readFile } from "node:fs/promises";
import type { Tokenizer } from "tokenizers";
import type { Tokenizing } from "../../columnar/tensor.js";
import { JobError, messageOf } from "../../util/errors.js";
import type { CountTokens } from "../paid-engine.js";

/** A file of a tokenizer on this machine. */
export interface TokenizerPlace {
  readonly path: string;
  /** The tokenizer as messages name it. */
  readonly uri: string;
  /** Hex digest that the file must have. */
  readonly sha256: string;
}

/** The tokens of a text, special tokens included. */
export interface Encoding {
  readonly ids: readonly number[];
  /** Empty where types are not asked for. */
  readonly types: readonly number[];
}

/** What of a text is to be encoded. */
export interface EncodeOptions extends Pick<Tokenizing, "width" | "cut"> {
  readonly withTypes: boolean;
}

/** Encodes texts, each by itself. */
export type Encode = (texts: readonly string[], options: EncodeOptions) => Promise<Encoding[]>;

/** A tokenizer that cannot be loaded. */
export class TokenizerError extends Error {
  override readonly name = "TokenizerError";
  readonly uri: string;

  constructor(uri: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.uri = uri;
  }
}

async function named<T>({ uri }: TokenizerPlace, loading: () => Promise<T>): Promise<T> {
  try {
    return await loading();
  } catch (cause) {
    throw new TokenizerError(uri, messageOf(cause), { cause });
  }
}

/** The error for a tokenizer that cannot be loaded. */
export function refusedTokenizer(uri: string, message: string): JobError {
  return new JobError("MODEL_INVALID", `loading tokenizer ${uri}: ${message}`, {
    hint: "check it with Python: tokenizers.Tokenizer.from_file(path); a tokenizer of a newer version may need another version of this program",
  });
}

/** Loads a tokenizer. @throws TokenizerError for a file that is no tokenizer, or that has another digest */
export async function loadTokenizer(place: TokenizerPlace): Promise<Encode> {
  return await named(place, () => load(place));
}

/** Loads a tokenizer that counts tokens of texts of any length. @throws TokenizerError as `loadTokenizer` */
export async function loadTokenCounter(place: TokenizerPlace): Promise<CountTokens> {
  const tokenizer = await named(place, () => open(place));
  tokenizer.disableTruncation();
  return async (texts, { withSpecial }) => {
    const encodings = await tokenizer.encodeBatch([...texts], { addSpecialTokens: withSpecial });
    return encodings.map((encoding) => encoding.getLength());
  };
}

async function load(place: TokenizerPlace): Promise<Encode> {
  const tokenizer = await open(place);
  return async (texts, { width, cut, withTypes }) => {
    tokenizer.setTruncation(width, { direction: cut });
    const encodings = await tokenizer.encodeBatch([...texts]);
    return encodings.map((encoding) => ({ ids: encoding.getIds(), types: withTypes ? encoding.getTypeIds() : [] }));
  };
}

async function open({ path, sha256 }: TokenizerPlace): Promise<Tokenizer> {
  const bytes = await readFile(path);
  if (sha256Of(bytes) !== sha256) {
    throw new Error("it was written to while it was being loaded");
  }
  const { Tokenizer } = await import("tokenizers"); // a native library, for specs with a tokenizer only
  const tokenizer = Tokenizer.fromString(bytes.toString("utf8"));
  tokenizer.disablePadding();
  return tokenizer;
}
