import type { Plan } from "../../plan/plan.js";
import type { RetryTools } from "../../util/retry.js";
import type { Control } from "./control/control.js";
import type { SpilledCopy } from "./copy/spilled-copy.js";
import type { Mode } from "./modes/mode.js";
import type { TableName } from "./names.js";
import type { RefuseNewer } from "./other-runs/newer-runs.js";
import type { PostgresTarget } from "./target.js";
import type { TransactionTools } from "./connections.js";

/** What the steps of a run work with: the target, its control tables, its write mode, and how a call is retried. */
export interface RunTools extends TransactionTools {
  /** Name of the target in messages. */
  readonly target: string;
  /** The target that the spec names, as a plan pins it. */
  readonly planTarget: PostgresTarget;
  readonly name: TableName;
  readonly control: Control;
  /** How the rows of a run are written. */
  readonly modeOf: (plan: Plan) => Mode;
  readonly refuseNewer: RefuseNewer;
  /** Warns, unless this sink has said so before: a run is prepared and read several times. */
  readonly warnOnce: (message: string) => void;
  readonly retry: RetryTools;
  /** Makes the control tables where they are missing, before anything is written. `last`: the error of the previous try. */
  readonly ensureControlTables: (last: unknown) => Promise<void>;
  /** Rows of incomplete spans. */
  readonly spilled: SpilledCopy;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
}
