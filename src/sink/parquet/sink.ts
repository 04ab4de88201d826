import type { DuckDbAccess } from "../../duckdb/instance.js";
import { numberedRunId } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import { requireKept } from "../../publish/pruned-run.js";
import type { Store } from "../../stores/store.js";
import type { ErrorCode } from "../../util/errors.js";
import type { Sink } from "../port.js";
import { loadEncoder } from "./commit.js";
import { createInPlace, openLedger } from "./ledger.js";
import { findHistory } from "./history.js";
import { layoutOf, plannedLayout } from "./layout.js";
import { findPublished, findPublishedParts, type OtherFolders, readPinned } from "./other-runs.js";
import { createPlan, findPlan, readPlan } from "./plan-file.js";
import { pruneFolder } from "./prune.js";
import { openRun, type RunTools } from "./run-sink.js";

export interface ParquetSinkOptions extends Omit<RunTools, "store"> {
  /** Names the folder in messages and reports. */
  readonly target: string;
  /** The path as the spec wrote it: a checkout or a volume may move between attempts. */
  readonly uri: string;
  /** Opens a folder as a store: the output folder, or that of another run of the job. */
  readonly storeAt: (folder: string) => Store;
  /** May read and write in the store's local folder; closed with the sink. */
  readonly duckdb: DuckDbAccess & AsyncDisposable;
  readonly otherRunFolders: OtherFolders;
  /** The code of the error when the store cannot be reached, or something that another run needs is gone. */
  readonly failure: ErrorCode;
  /** Checks that a run could write here, without writing. Returns the checks that were not carried out, a line each. */
  readonly rehearse: (plan: Plan) => Promise<readonly string[]>;
  /** Closes what the stores use. */
  readonly close: () => Promise<void>;
}

/**
 * Opens a target of Parquet files in a store. Each span is one file, and its appearance under the final name is the
 * commit. The folder need not exist.
 */
export function openParquetSink(options: ParquetSinkOptions): Sink {
  const { folder, duckdb, otherRunFolders: folders } = options;
  const store = options.storeAt(folder);
  const tools: RunTools = { ...options, store };
  return {
    target: options.target,
    planTarget: { kind: "parquet", uri: options.uri },
    ledger: openLedger(store, folder),
    table: undefined,
    find: (base, number) =>
      number === undefined
        ? findPlan(store, folder, base)
        : readPlan(store, layoutOf(folder, numberedRunId(base, number))),
    published: (where) => findPublished(store, { folder, folders }, where),
    readProfile: (pinned) => readPinned(store, folder, { ...pinned, failure: options.failure }),
    async readPublished({ run }) {
      const { place, rows, parts } = await findPublishedParts(store, folder, { ...run, failure: options.failure });
      return { format: "parquet", rows, ...options.storeAt(place).fetch(parts, "whole") };
    },
    history: (request) => findHistory(store, { folder, folders }, request),
    prune: (request) => pruneFolder(options.storeAt(request.place), request),
    rehearse: (plan) => options.rehearse(plan),
    expect() {
      loadEncoder(duckdb);
    },
    create: (plan, held) =>
      held === undefined
        ? createPlan(store, plannedLayout(folder, plan), plan)
        : createInPlace(store, folder, plan, held),
    open: async (stored, how) => await openRun(tools, requireKept(stored), how),
    async [Symbol.asyncDispose]() {
      await duckdb[Symbol.asyncDispose]();
      await options.close();
    },
  };
}
