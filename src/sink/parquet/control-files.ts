import { parseJson } from "../../plan/parse-plan.js";
import { splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { type Decision, parseDecision } from "../../publish/decision.js";
import { parseRunVerdict, type RunVerdict } from "../../publish/run-verdict.js";
import { requireApproved } from "../../publish/require-approved.js";
import { verdictWithoutRows } from "../../publish/erasure.js";
import { type RunState, stateOf } from "../../publish/lifecycle.js";
import { type ReadableStore, type Store, textAt } from "../../stores/store.js";
import type { RunFolder } from "./parts.js";
import { damagedOutput } from "./damage.js";
import type { ReviewedPlan } from "../port.js";
import { type Layout, layoutOf } from "./layout.js";
import { readPlan, runIdsIn } from "./plan-file.js";
import type { ProfileFile } from "./manifest.js";
import { sha256Of } from "../../util/sha256.js";

/** Reads the verdict on a run; undefined where there is none. @throws JobError OUTPUT_DAMAGED */
export async function readVerdict(store: ReadableStore, layout: Layout): Promise<RunVerdict | undefined> {
  return await readControlFile(store, layout, { path: layout.verdict, noun: "verdict", parse: parseRunVerdict });
}

/** Reads the decision on a run; undefined where there is none. @throws JobError OUTPUT_DAMAGED */
export async function readDecision(store: ReadableStore, layout: Layout): Promise<Decision | undefined> {
  return await readControlFile(store, layout, { path: layout.decision, noun: "decision", parse: parseDecision });
}

/** Reads the state of a run. @throws JobError OUTPUT_DAMAGED */
export async function readState(
  store: ReadableStore,
  layout: Layout,
  { plan: { staged, erasure }, published }: { readonly plan: Plan; readonly published: boolean },
): Promise<RunState> {
  const isOpen = staged && !published;
  return stateOf({
    published,
    staged,
    isErasure: erasure !== undefined,
    verdict: isOpen ? await readVerdict(store, layout) : undefined,
    decision: isOpen ? await readDecision(store, layout) : undefined,
  });
}

async function readControlFile<T>(
  store: ReadableStore,
  { runId }: Layout,
  { path, noun, parse }: { path: string; noun: string; parse: (json: unknown) => T | undefined },
): Promise<T | undefined> {
  const text = await textAt(store, path);
  if (text === undefined) {
    return undefined;
  }
  const found = parse(parseJson(text));
  if (found === undefined) {
    throw damagedOutput(`reading ${path}: it is no ${noun} of this program`, { hint: "restore it", damage: { runId } });
  }
  return found;
}

/** A verdict or a decision as text. */
export function controlText(value: RunVerdict | Decision): string {
  return `${JSON.stringify(value)}\n`;
}

/** The file of a run's profile, and its text. */
export interface ProfileToWrite {
  readonly text: string;
  readonly entry: ProfileFile;
}

/** @param decision of a staged run; a run without one is part of what later runs are compared with */
export function profileToWrite(
  { folder, profile }: Layout,
  text: string,
  decision: Decision | undefined,
): ProfileToWrite {
  const file = profile.slice(folder === "/" ? 1 : folder.length + 1);
  return { text, entry: { file, sha256: sha256Of(text), baseline: decision?.asBaseline ?? true } };
}

/**
 * Refuses a run that was superseded or discarded, which removes its parts.
 * @throws JobError DISCARDED, PLAN_CHANGED
 */
export async function refuseStopped({
  store,
  layout,
  stored,
  check,
}: Pick<RunFolder, "store" | "layout" | "stored" | "check">): Promise<void> {
  await check();
  const decision = stored.plan.staged ? await readDecision(store, layout) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, layout.runId);
  }
}

/** Removes what the stored verdicts on runs of these params say of single rows. */
export async function stripVerdicts(store: Store, folder: string, base: RunId): Promise<void> {
  for (const name of await runIdsIn(store, layoutOf(folder, base))) {
    if (splitRunId(name).base !== base) {
      continue;
    }
    const layout = layoutOf(folder, name);
    const verdict = await readVerdict(store, layout);
    const text = verdict === undefined ? undefined : controlText(verdictWithoutRows(verdict));
    if (verdict !== undefined && text !== undefined && text !== controlText(verdict)) {
      await store.overwrite(layout.verdict, text);
    }
  }
}

/** Reads the plan of a run, and what was decided on it. */
export async function reviewedPlan(
  store: ReadableStore,
  folder: string,
  runId: RunId,
): Promise<ReviewedPlan | undefined> {
  const layout = layoutOf(folder, runId);
  const stored = await readPlan(store, layout);
  return stored === undefined
    ? undefined
    : { ...stored, verdict: await readVerdict(store, layout), decision: await readDecision(store, layout) };
}
