import { createHash } from "node:crypto";
import { parseJson } from "../../../plan/parse-plan.js";
import type { Plan } from "../../../plan/plan.js";
import { type Decision, parseDecision } from "../../../publish/decision.js";
import { parseRunVerdict, type RunVerdict } from "../../../publish/run-verdict.js";
import { requireApproved } from "../../../publish/require-approved.js";
import { type RunState, stateOf } from "../../../publish/state.js";
import type { Target } from "./committed-parts.js";
import { damagedOutput } from "./damage.js";
import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";
import type { ProfileFile } from "./manifest.js";

/** Reads the verdict on a run; undefined where there is none. @throws JobError OUTPUT_DAMAGED */
export async function readVerdict(fs: TargetState, layout: Layout): Promise<RunVerdict | undefined> {
  return await readControlFile(fs, layout, { path: layout.verdict, noun: "verdict", parse: parseRunVerdict });
}

/** Reads the decision on a run; undefined where there is none. @throws JobError OUTPUT_DAMAGED */
export async function readDecision(fs: TargetState, layout: Layout): Promise<Decision | undefined> {
  return await readControlFile(fs, layout, { path: layout.decision, noun: "decision", parse: parseDecision });
}

/** Reads the state of a run. @throws JobError OUTPUT_DAMAGED */
export async function readState(
  fs: TargetState,
  layout: Layout,
  { plan: { staged, erasure }, published }: { readonly plan: Plan; readonly published: boolean },
): Promise<RunState> {
  const isOpen = staged && !published;
  return stateOf({
    published,
    staged,
    isErasure: erasure !== undefined,
    verdict: isOpen ? await readVerdict(fs, layout) : undefined,
    decision: isOpen ? await readDecision(fs, layout) : undefined,
  });
}

async function readControlFile<T>(
  fs: TargetState,
  { runId }: Layout,
  { path, noun, parse }: { path: string; noun: string; parse: (json: unknown) => T | undefined },
): Promise<T | undefined> {
  const text = await ifThere(fs.readText(path));
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

export function sha256Of(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/**
 * Refuses a run that was superseded or discarded, which removes its key and parts. Returns the decision on a staged run.
 * @throws JobError DISCARDED, PLAN_CHANGED
 */
export async function refuseStopped({
  fs,
  layout,
  stored,
  check,
}: Pick<Target, "fs" | "layout" | "stored" | "check">): Promise<Decision | undefined> {
  await check();
  const decision = stored.plan.staged ? await readDecision(fs, layout) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, layout.runId);
  }
  return decision;
}
