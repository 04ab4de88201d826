import type { Decision } from "./decision.js";
import type { RunVerdict } from "./run-verdict.js";

/** The state of a run. A run that is not staged is `unfinished` or `published` only. */
export type RunState =
  /** Spans are missing, or there is no verdict yet, or it passed and is not acted upon yet. */
  | { readonly kind: "unfinished" }
  /** The verdict holds the run, and there is no decision yet. */
  | { readonly kind: "held"; readonly verdict: RunVerdict }
  /** Publishing is under way or was killed: any attempt continues it. */
  | { readonly kind: "approved"; readonly decision: Decision }
  | { readonly kind: "published" }
  | { readonly kind: "discarded"; readonly decision: Decision }
  | { readonly kind: "superseded"; readonly decision: Decision };

/** What is stored of a run. */
export interface StoredFacts {
  readonly published: boolean;
  readonly staged: boolean;
  readonly verdict: RunVerdict | undefined;
  readonly decision: Decision | undefined;
  /** Whether its verdict is that of the run whose rows it copies, and never holds it. Default: it is not. */
  readonly isErasure?: boolean;
}

/** The state that these facts make; the only place that says so. */
export function stateOf({ published, staged, verdict, decision, isErasure = false }: StoredFacts): RunState {
  if (published) {
    return { kind: "published" };
  }
  if (!staged) {
    return { kind: "unfinished" };
  }
  if (decision !== undefined) {
    return { kind: decision.kind, decision };
  }
  return verdict?.verdict.outcome === "hold" && !isErasure ? { kind: "held", verdict } : { kind: "unfinished" };
}
