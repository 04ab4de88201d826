/** What bindings need to know of a tokenizer's file. */
export interface TokenizerFacts {
  /** Hex digest of the file. */
  readonly sha256: string;
  /** The length to which the file truncates texts; undefined: it does not. */
  readonly maxTokens: number | undefined;
  /** The side on which longer texts are cut. */
  readonly cut: "left" | "right";
  /** The id of the padding token; undefined: the file has none. */
  readonly padId: number | undefined;
  /** The side on which padding is added. */
  readonly side: "left" | "right";
}
