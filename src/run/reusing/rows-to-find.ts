import type { Decoder } from "../../formats/port.js";
import type { HashSeeds } from "../../packing/feature-hasher.js";
import type { Plan } from "../../plan/plan.js";
import type { SpanRange } from "../../plan/worker-shares.js";
import type { pendingRanges } from "../../scoring/read-ranges.js";
import type { RunSink } from "../../sink/port.js";
import type { Source } from "../../storage/port.js";

/** A run whose predictions may be those of an earlier one. */
export interface ReuseInput {
  readonly plan: Plan;
  readonly run: Pick<RunSink, "committed">;
  readonly decoder: Decoder;
  readonly source: Source;
  /** The spans whose rows are looked up. */
  readonly share: SpanRange;
}

/** Pending rows, for which rows of an earlier run are looked up. */
export interface RowsToFind extends Pick<ReuseInput, "plan" | "decoder" | "source"> {
  readonly ranges: ReturnType<typeof pendingRanges>;
  readonly seeds: HashSeeds;
}
