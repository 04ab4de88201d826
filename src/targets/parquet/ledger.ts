import { parseJson } from "../../run/plan/parse-plan.js";
import type { Plan } from "../../run/plan/plan.js";
import { type Fence, type Store, namesIn } from "../../stores/store.js";
import { type Decision, type SupersededRun, requireApproved } from "../../run/lifecycle/lifecycle.js";
import { JobError, orError } from "../../base/errors.js";
import {
  type AnswerJournal,
  answerGroups,
  type DocumentKind,
  type LoggedAnswer,
  type Ledger,
  decisionDocument,
} from "../../stores/ledger.js";
import type { RunFolder } from "./parts.js";
import { createPlan, damagedOutput, lasting, planCheck, storedPlan, unfenced } from "./plan-file.js";
import type { StoredPlan } from "../target.js";
import { type Layout, layoutOf, plannedLayout } from "./layout.js";
import { sha256Of } from "../../base/sha256.js";

/** Opens the documents of the runs of a folder: files, of which whoever creates one first wins. */
export function openLedger(store: Store, folder: string): Ledger {
  return {
    read: (runId, kind) => readDocument(store, layoutOf(folder, runId), kind),
    create(run, kind, value) {
      const layout = layoutOf(folder, typeof run === "string" ? run : run.plan.runId);
      const fence =
        typeof run === "string" ? unfenced(layout) : lasting({ layout, check: planCheck(store, layout, run.planId) });
      return createDocument(store, layout, kind, value, fence);
    },
    async change(runId, kind, next, stop) {
      const layout = layoutOf(folder, runId);
      const changed = (text: string | undefined): string | undefined => {
        const value = next(documentIn(text, layout, kind));
        return value === undefined ? text : documentText(value);
      };
      if ((await store.stat(layout.plan, stop)) !== undefined) {
        await store.update(layout.document(kind.name), changed, undefined, stop);
      }
    },
    remove: (runId, { name }) => store.remove(layoutOf(folder, runId).control, [`${name}.json`]),
  };
}

/** Reads a document of a run; undefined where there is none. @throws JobError OUTPUT_DAMAGED */
export async function readDocument<T>(
  store: Pick<Store, "readText">,
  layout: Layout,
  kind: DocumentKind<T>,
): Promise<T | undefined> {
  return documentIn(await store.readText(layout.document(kind.name)), layout, kind);
}

function documentIn<T>(
  text: string | undefined,
  { runId, document }: Layout,
  { name, parse }: DocumentKind<T>,
): T | undefined {
  if (text === undefined) {
    return undefined;
  }
  const found = parse(parseJson(text));
  if (found === undefined) {
    throw damagedOutput(runId, `reading ${document(name)}: it is no ${name} of this program`, "restore it");
  }
  return found;
}

async function createDocument<T>(
  store: Store,
  layout: Layout,
  kind: DocumentKind<T>,
  value: T,
  fence: Fence,
): Promise<T> {
  const path = layout.document(kind.name);
  await store.create(path, documentText(value), fence);
  const stored = await readDocument(store, layout, kind);
  if (stored === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `writing ${path}: it is gone since it was written`, {
      hint: "something else removes files here; run the same command again",
    });
  }
  return stored;
}

function documentText(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}

/** Refuses a run that was superseded or discarded, which removes its parts. @throws JobError DISCARDED, PLAN_CHANGED */
export async function refuseStopped({
  store,
  layout,
  stored,
  check,
}: Pick<RunFolder, "store" | "layout" | "stored" | "check">): Promise<void> {
  await check();
  const decision = stored.plan.staged ? await readDocument(store, layout, decisionDocument) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, layout.runId);
  }
}

/** Stores the decision that a run is superseded, then the plan of the later run; returns the run's own if it is approved. */
export async function createInPlace(
  store: Store,
  folder: string,
  plan: Plan,
  { runId, decision }: SupersededRun,
): Promise<StoredPlan> {
  const layout = layoutOf(folder, runId);
  const first =
    (await readDocument(store, layout, decisionDocument)) ??
    (await orError(
      () => supersede(store, layout, decision),
      ({ code }) => code === "PLAN_CHANGED", // another attempt has stored the plan of the later run
    ));
  return !(first instanceof JobError) && first.kind === "approved"
    ? await storedPlan(store, layout)
    : await createPlan(store, plannedLayout(folder, plan), plan);
}

async function supersede(store: Store, layout: Layout, value: Decision): Promise<Decision> {
  const stored = await storedPlan(store, layout);
  return await openLedger(store, layout.folder).create(stored, decisionDocument, value);
}

const readAtOnce = 8;

/** How long an answer waits for others: a killed attempt pays again for those of this time, and each write is a file. */
const pauseMs = 1000;

/** Opens the journal of a run: a folder to which each attempt adds files. */
export function openAnswerFiles(store: Store, layout: Layout, writer: string, fence: Fence): AnswerJournal {
  let files = 0;
  return {
    pauseMs,
    read: () => readAnswers(store, layout),
    async keep(answers) {
      for (const group of answerGroups(answers)) {
        const text = group.map(recordOf).join("");
        let created = { outcome: "exists" };
        while (created.outcome === "exists") {
          files += 1;
          created = await store.create(`${layout.answers}/${String(files).padStart(6, "0")}.${writer}`, text, fence);
        }
      }
    },
  };
}

async function* readAnswers(store: Store, { answers: log }: Layout): AsyncGenerator<LoggedAnswer> {
  const names = await namesIn(store, log);
  for (let start = 0; start < names.length; start += readAtOnce) {
    const group = names.slice(start, start + readAtOnce);
    for (const text of await Promise.all(group.map((name) => store.readText(`${log}/${name}`)))) {
      yield* answersIn(text ?? "");
    }
  }
}

const checksumDigits = 16;

/** A record is a line: the checksum of the rest, a space, the request's digest, a space, and the answer's JSON. */
const recordPattern = /^([0-9a-f]{16}) (([0-9a-f]{64}) (.+))$/s;

function recordOf({ request, answer }: LoggedAnswer): string {
  // JSON has line ends only between its values, where they mean nothing.
  const content = `${request} ${answer.replaceAll(/[\r\n]+/g, " ")}`;
  return `${checksumOf(content)} ${content}\n`;
}

/**
 * Yields the answers of a file of the log. Leaves out lines that are torn or damaged.
 * @public so that tests read a journal as a killed attempt left it
 */
export function* answersIn(text: string): Generator<LoggedAnswer> {
  for (let start = 0, end = text.indexOf("\n"); end >= 0; start = end + 1, end = text.indexOf("\n", start)) {
    const [, checksum, content = "", request = "", answer = ""] = recordPattern.exec(text.slice(start, end)) ?? [];
    if (checksum !== undefined && checksum === checksumOf(content)) {
      yield { request, answer };
    }
  }
}

function checksumOf(content: string): string {
  return sha256Of(content).slice(0, checksumDigits);
}
