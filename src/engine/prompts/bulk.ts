import type { AnswerFault } from "../../columnar/types.js";
import type { BulkAsking } from "../paid-engine.js";

/** Why a row has no answer. */
export interface RowRefusal {
  readonly reason: AnswerFault | undefined;
  readonly message: string;
}

/** Asks a language model for many rows together. */
export interface PromptBulk extends BulkAsking {
  /** Whether it has begun. Rows that come before are asked one by one: a preview waits for no batch. */
  readonly isBegun: boolean;
  /** Why a request has no answer; undefined: nothing was said about it. */
  refusalOf(key: string): RowRefusal | undefined;
}
