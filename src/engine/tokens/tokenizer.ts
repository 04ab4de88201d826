import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Tokenizing } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";

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

/** Loads a tokenizer. @throws TokenizerError for a file that is no tokenizer, or that has another digest */
export async function loadTokenizer(place: TokenizerPlace): Promise<Encode> {
  try {
    return await load(place);
  } catch (cause) {
    throw new TokenizerError(place.uri, messageOf(cause), { cause });
  }
}

async function load({ path, sha256 }: TokenizerPlace): Promise<Encode> {
  const bytes = await readFile(path);
  if (createHash("sha256").update(bytes).digest("hex") !== sha256) {
    throw new Error("it was written to while it was being loaded");
  }
  const { Tokenizer } = await import("tokenizers"); // a native library, for specs with a tokenizer only
  const tokenizer = Tokenizer.fromString(bytes.toString("utf8"));
  tokenizer.disablePadding();
  return async (texts, { width, cut, withTypes }) => {
    tokenizer.setTruncation(width, { direction: cut });
    const encodings = await tokenizer.encodeBatch([...texts]);
    return encodings.map((encoding) => ({ ids: encoding.getIds(), types: withTypes ? encoding.getTypeIds() : [] }));
  };
}
