import { z } from "../base/zod.js";
import { orError } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import { comparedNights } from "../checks/check.js";
import { type ComparedDay, type DaySigns, signsIn } from "../checks/checks.js";
import { addProfiles } from "../checks/profile/profile.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import {
  decisionDocument,
  type Ledger,
  noteDocument,
  packText,
  unpackText,
  verdictDocument,
} from "../stores/ledger.js";
import { instantOf, localMs } from "../report/calls.js";
import type { RunSink } from "../targets/target.js";
import { linkOf, type StoredLink } from "./chain.js";
import { readsAtOnce } from "./checks.js";
import { parseRunProfile, runProfileOf, runProfileText } from "./lifecycle/profile-text.js";
import { countSpans } from "./lifecycle/span-record.js";
import { numberedRunId } from "./plan/identity.js";
import { parseJson } from "./plan/parse-plan.js";
import type { PlannedDay, RunId } from "./plan/plan.js";

/*
 * The runs of a chain are small, and the hours of a day differ. So a run is judged by all rows that runs of its day have
 * read so far, beside those of earlier days until the same time.
 */

/**
 * The rows that the runs of a day have read, up to a published one: a note under that run's number at the output of the
 * chain, stored when the next run is looked for. Runs that were discarded have none.
 *
 * After a run that a person approved, the rest of its day is compared with nothing. It is what later days may resemble.
 * A run that is not normal, has no checks or reads all rows ends the sum. What comes after it begins another one, and sums are
 * compared that begin at about the same time of the day.
 */
interface DaySoFar extends Pick<PlannedDay, "beginsMs"> {
  /** null: the sum ends, and no run is compared with it. */
  readonly profile: RunProfile | null;
  readonly signs: DaySigns;
  /** Whether the signs could have held the run. */
  readonly staged: boolean;
}

const dayNote = noteDocument("day");

const noted = z.object({
  beginsMs: z.number(),
  /** As packed text. */
  profile: z.string().nullable(),
  signs: z.record(z.string(), z.number()),
  staged: z.boolean(),
});

async function dayOf(ledger: Ledger, chain: RunId, run: number): Promise<DaySoFar | undefined> {
  const note = await ledger.read(numberedRunId(chain, run), dayNote);
  const { data } = noted.safeParse(parseJson(note?.text ?? ""));
  return data && { ...data, profile: parseRunProfile(unpackText(data.profile ?? "")) ?? null };
}

/**
 * Stores what the runs of a day have read up to a published run, unless that is stored, and removes the notes that no later
 * run is compared with. @param decisions has the run's own
 */
export async function storeDay(
  ledger: Ledger,
  chain: RunId,
  { run: number, at }: Pick<StoredLink, "run" | "at">,
  { run, decisions }: { readonly run: RunSink; readonly decisions: Ledger },
): Promise<void> {
  const { plan, state, spans } = run;
  if (state.kind !== "published" || (await dayOf(ledger, chain, number)) !== undefined) {
    return;
  }
  const decision = plan.staged ? await decisions.read(plan.runId, decisionDocument) : undefined;
  const day = decision?.asBaseline === false ? undefined : plan.checks?.day;
  const own = day && runProfileOf(plan, { profile: await run.profile(), ...countSpans(spans), decision });
  const profile = own === undefined ? null : runProfileText((await addedTo(ledger, chain, day, own)).run);
  const verdict = await decisions.read(plan.runId, verdictDocument);
  const signs = verdict === undefined ? {} : signsIn(verdict.verdict);
  const note = {
    beginsMs: day === undefined ? 0 : day.beginsMs,
    profile: profile && packText(profile),
    signs,
    staged: plan.staged,
  } satisfies z.infer<typeof noted>;
  const text = JSON.stringify(note);

  // Before the note is there: an attempt that is killed meanwhile is followed by one that removes them.
  await removeOld(ledger, chain, plan.checks?.day?.before ?? Math.max(1, number - mostDiscarded), number);
  await ledger.create(numberedRunId(chain, number), dayNote, { at, writer: run.planId, text });
}

/** Days of which notes stay. No run is compared with one that was planned longer before it, also over changes of the clock. */
const notedDays = comparedNights + 2;

/**
 * Removes the notes that became old between two runs. A run's time is that of the run before it where that is earlier: one
 * clock may be ahead. Notes that this user may not remove stay.
 */
async function removeOld(ledger: Ledger, chain: RunId, before: number, run: number): Promise<void> {
  const timeOf = timesOf(ledger, chain);
  const oldAt = async (time: number): Promise<number> => await runNearest(timeOf, run, time - notedDays * dayMs);
  const earlier = async (of: number): Promise<number> => Math.min(await timeOf(Math.max(1, of - 1)), await timeOf(of));
  const [from, to] = [await oldAt(await earlier(before)), await oldAt(await earlier(run))];
  const old = Array.from({ length: to - from }, (_, index) => numberedRunId(chain, from + index));
  await orError(
    () => mapBounded(old, readsAtOnce, (runId) => ledger.remove(runId, dayNote)),
    ({ code }) => code === "PERMISSION",
  );
}

async function addedTo(
  ledger: Ledger,
  chain: RunId,
  day: PlannedDay | undefined,
  own: RunProfile,
): Promise<Omit<ComparedDay, "earlier">> {
  const { profile = null, signs = {} } = (day && (await dayOf(ledger, chain, day.before))) ?? {};
  return profile !== null && profile.date === day?.date
    ? { run: addProfiles(profile, own), signs }
    : { run: own, signs: Object.fromEntries(Object.keys(signs).map((sign) => [sign, 0])) };
}

/** Discarded runs in a row, at most: after more, a sum begins. */
const mostDiscarded = 8;
const dayMs = 86_400_000;

/** What a run is judged with that is planned at a time. undefined: no run was published before it. */
export async function planDay(
  ledger: Ledger,
  chain: RunId,
  { run, at, timeZone }: { readonly run: number; readonly at: Date; readonly timeZone: string },
): Promise<PlannedDay | undefined> {
  let last = run;
  let known: DaySoFar | undefined;
  while (known === undefined && last > Math.max(1, run - mostDiscarded)) {
    last -= 1;
    known = await dayOf(ledger, chain, last);
  }
  if (known === undefined) {
    return undefined;
  }

  const timeOf = timesOf(ledger, chain);
  const now = localMs(at.getTime(), timeZone);
  const date = dateOf(now);
  const isOfDay = known.profile?.date === date;
  const beginsMs = isOfDay ? known.beginsMs : localMs(await timeOf(last), timeZone) - Date.parse(date);
  const days = Array.from({ length: comparedNights }, (_, index) => now - (comparedNights - index) * dayMs);
  const earlier = await mapBounded(isOfDay && known.profile?.isApproved ? [] : days, readsAtOnce, async (local) => {
    const nearest = await runNearest(timeOf, last, instantOf(local, timeZone));
    return dateOf(localMs(await timeOf(nearest), timeZone)) === dateOf(local) ? [nearest] : [];
  });
  return { date, beginsMs, before: last, earlier: earlier.flat() };
}

/** Reads when runs were planned, each once. */
function timesOf(ledger: Ledger, chain: RunId): (run: number) => Promise<number> {
  const times = new Map<number, Promise<number>>();
  return async (run) => {
    const time = times.get(run) ?? linkOf(ledger, chain, run).then((stored) => Date.parse(stored?.at ?? ""));
    times.set(run, time);
    return await time;
  };
}

function dateOf(local: number): string {
  return new Date(local).toISOString().slice(0, "2026-11-23".length);
}

/** The run that was planned nearest to a time. Most follow each other in about equal steps, which a pause interrupts. */
async function runNearest(timeOf: (run: number) => Promise<number>, last: number, timeMs: number): Promise<number> {
  let [low, high] = [1, last];
  for (let halves = false; high - low > 1; halves = !halves) {
    const [from, to] = [await timeOf(low), await timeOf(high)];
    const share = halves ? 0.5 : (timeMs - from) / Math.max(1, to - from);
    const between = Math.min(high - 1, Math.max(low + 1, Math.round(low + share * (high - low))));
    if ((await timeOf(between)) <= timeMs) {
      low = between;
    } else {
      high = between;
    }
  }
  return Math.abs((await timeOf(low)) - timeMs) < Math.abs((await timeOf(high)) - timeMs) ? low : high;
}

/** How much earlier or later in its day a sum may begin than one that it is compared with. */
const mostApartMs = 3_600_000;

export async function readDay(ledger: Ledger, chain: RunId, day: PlannedDay, own: RunProfile): Promise<ComparedDay> {
  const days = await mapBounded(
    day.earlier,
    readsAtOnce,
    // The rows of a discarded run come again with the next one.
    async (run) => (await dayOf(ledger, chain, run)) ?? (await dayOf(ledger, chain, run + 1)),
  );
  const earlier = days.flatMap((known) => {
    if (known === undefined || known.profile === null) {
      return [];
    }
    const { beginsMs, profile, signs, staged } = known;
    const isLike = Math.abs(beginsMs - day.beginsMs) <= mostApartMs;
    // What was suspicious and has passed would hide the same fault of the next day. Where nothing is held, nobody approves.
    const isNormal = !staged || profile.isApproved === true || Object.keys(signs).length === 0;
    return isLike && isNormal ? [profile] : [];
  });
  return { ...(await addedTo(ledger, chain, day, own)), earlier };
}
