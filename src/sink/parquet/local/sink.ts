import { join, relative, resolve } from "node:path";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { refuseForeign } from "../common/claim.js";
import { createDurably, guarded, makeFolder, makeRunFolder, replaceDurably } from "./durable.js";
import { reviewedPlan, stripVerdicts } from "../common/erasing/reviewed-runs.js";
import { type Layout, plannedLayout } from "../common/layout.js";
import { loadEncoder } from "../common/commit.js";
import { notesBeforePlan, openParquetRun, type ParquetRunOptions } from "./run-sink.js";
import { claimText, runIdIn } from "../common/named-run.js";
import { type FileSystem, ifThere } from "../common/file-system.js";
import type { Plan } from "../../../plan/plan.js";
import type { Sink, StoredPlan } from "../../port.js";
import { findHistory } from "../common/other-runs/history.js";
import { requireKept } from "../../../publish/pruned-run.js";
import { pruneFolder } from "../common/pruning/earlier-files.js";
import { diskPruning } from "./prune.js";
import { findPublishedParts } from "../common/other-runs/published-rows.js";
import { findPublished, readersAt, readPinned } from "../common/other-runs/published-runs.js";
import { findUnfinished } from "../common/other-runs/unfinished-runs.js";
import { findPlan, laterRunOr, lostPlans, lostPlanText, sealedText, storedPlan } from "../common/stored-plan.js";
import { clearFolder, withFolders } from "./temporary.js";

/**
 * `folder` need not exist. `writer` names this attempt's temporary files: it is unique among all attempts on all
 * machines.
 */
export interface ParquetSinkOptions extends ParquetRunOptions {
  /** Names the folder in messages and reports. */
  readonly target: string;
  /** The path as the spec wrote it: a checkout or a volume may move between attempts. */
  readonly uri: string;
  /** May read and write in the folder; closed with the sink. */
  readonly duckdb: DuckDbAccess & AsyncDisposable;
  /** Pattern of the folders of the job's other runs: segments of an absolute path. */
  readonly otherRunFolders: readonly (string | RegExp)[];
}

/**
 * Opens a target that is a folder. Each span is one Parquet file, and its appearance under the final name is the
 * commit.
 */
export function openParquetSink(options: ParquetSinkOptions): Sink {
  const { folder, fs, duckdb } = options;
  const folders = { root: "", pattern: options.otherRunFolders };
  return {
    target: options.target,
    planTarget: { kind: "parquet", uri: options.uri },
    newRunAdds: false,
    find: (base) => guarded(`reading ${folder}`, () => findPlan(fs, folder, base)),
    unfinished: async (job, base) => await findUnfinished(fs, folders, { job, base }),
    published: (series) =>
      guarded(`looking for earlier runs of ${series.job}`, () =>
        findPublished(fs, folders, { series, placeOf: (path) => relative(folder, path) }),
      ),
    visible: () => guarded(`reading ${folder}`, () => readersAt(fs, folder)),
    readProfile: (pinned) => {
      const path = resolve(folder, pinned.place);
      return guarded(`reading ${path}`, () => readPinned(fs, pinned, { path, code: "DISK" }));
    },
    readPublished: ({ run }) => {
      const profile = resolve(folder, run.place);
      return guarded(`reading ${profile}`, async () => {
        const found = await findPublishedParts(fs, run, { profile, code: "DISK" });
        const { rows, parts } = found;
        return { format: "parquet", rows, folder: found.folder, groups: inOneGroup(parts) };
      });
    },
    history: (request) =>
      guarded(`reading the runs of ${request.job}`, () => findHistory(fs, { folder, folders }, request)),
    prune: (request) =>
      guarded(`pruning ${request.place}`, () => pruneFolder(diskPruning(fs, options.writer), request)),
    stored: (runId) => guarded(`reading ${folder}`, () => reviewedPlan(fs, folder, runId)),
    keptRows: () => "copied",
    stripVerdicts: (base) =>
      guarded(`erasing in ${folder}`, () => stripVerdicts({ fs, replace: replaceOnDisk(options) }, folder, base)),
    async rehearse(plan) {
      const { rehearse } = await import("./rehearse.js"); // which only dry runs need
      return await rehearse(folder, plan);
    },
    expect() {
      loadEncoder(duckdb);
    },
    notes: (runId) => notesBeforePlan(options, runId),
    create: (plan) => createPlan(options, plan),
    open: (stored, how) => guarded(`reading ${folder}`, () => openParquetRun(options, requireKept(stored), how)),
    async [Symbol.asyncDispose]() {
      await duckdb[Symbol.asyncDispose]();
    },
  };
}

// oxlint-disable-next-line require-await -- the port reads groups asynchronously
async function* inOneGroup(paths: readonly string[]): AsyncGenerator<readonly string[]> {
  yield* paths.length === 0 ? [] : [paths];
}

/** Stores a plan unless another attempt has already stored one. Returns the stored plan. */
async function createPlan({ folder, fs, writer }: ParquetSinkOptions, plan: Plan): Promise<StoredPlan> {
  const layout = plannedLayout(folder, plan);
  return await guarded(`writing the plan to ${layout.plan}`, async () => {
    await makeRunFolder(fs, layout).catch(async (error: unknown) => {
      const { danglingLinkOr } = await import("./rehearse.js");
      throw await danglingLinkOr(error, layout);
    });
    await withFolders({ fs, folders: [layout.temporary], check: nothingToCheck }, async () => {
      await claimFolder(fs, layout, writer);
      for (const lost of await lostPlans(fs, layout)) {
        await makeFolder(fs, lost.control);
        const temporary = join(layout.temporary, `lost-plan.${writer}`);
        await createDurably(fs, { temporary, final: lost.plan, text: lostPlanText });
      }
      const temporary = join(layout.temporary, `plan.${writer}`);
      await createDurably(fs, { temporary, final: layout.plan, text: sealedText(plan) });
    }).catch(async (error: unknown) => {
      throw await laterRunOr(fs, layout, error);
    });
    if (runIdIn(await ifThere(fs.readText(layout.success))) === plan.runId) {
      await clearFolder(fs, layout.temporary); // another attempt has already finished the run
    }
    return await storedPlan(fs, layout);
  });
}

/**
 * Claims the folder for this run and those before and after it. The first to claim it owns it, so that two jobs that
 * start at once cannot both write there.
 * @throws JobError OUTPUT_FOREIGN
 */
async function claimFolder(fs: FileSystem, layout: Layout, writer: string): Promise<void> {
  await createDurably(fs, {
    temporary: join(layout.temporary, `claim.${writer}`),
    final: layout.claim,
    text: claimText(layout),
  });
  await refuseForeign(fs, layout);
}

function replaceOnDisk({ fs, writer }: ParquetSinkOptions): (path: string, text: string) => Promise<void> {
  return (path, text) =>
    replaceDurably(fs, { temporary: `${path}.${writer}`, final: path, text, check: nothingToCheck });
}

/** Until the plan is stored, no later run can supersede this one. */
const nothingToCheck = (): Promise<void> => Promise.resolve();
