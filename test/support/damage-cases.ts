import { rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import { partNames, spanOfName } from "./output.js";
import { leaveUnfinished, scoreHere } from "./score.js";
import type { OwnJob } from "./world.js";

export const commitRows = 100;

export const id = "cancer-logistic-4f53cda18c2b";

export const plan = (number = 1): string => `_infer-batch/${id}${number === 1 ? "" : `-r${number}`}/plan.json`;

const otherPlan = { commit_rows: commitRows, model: { cast: "lossy" } };

export async function partOf({ out }: OwnJob, span: number): Promise<string> {
  const name = (await partNames(out)).find((candidate) => spanOfName(candidate) === span);
  return join(out, name ?? "");
}

async function finished(job: OwnJob): Promise<void> {
  await scoreHere(job.spec);
}

export async function unfinished(job: OwnJob): Promise<void> {
  await leaveUnfinished(job.spec, job.out, (span) => span < 4);
}

async function twice(job: OwnJob): Promise<void> {
  await scoreHere(job.spec);
  await scoreHere(job.spec, { newRun: true });
}

interface Case {
  readonly what: string;
  readonly before: (job: OwnJob) => Promise<void>;
  readonly damage: (job: OwnJob) => Promise<void>;
  readonly says: RegExp;
  /** Of the run that `--new-run` then opens. */
  readonly number?: number;
}

export const cases: readonly Case[] = [
  {
    what: "a finished run without one of its parts",
    before: finished,
    damage: async (job) => rm(await partOf(job, 1)),
    says: /part-00001.*: it is gone, the manifest says/,
  },
  {
    what: "a finished run with a part that was cut short",
    before: finished,
    damage: async (job) => truncate(await partOf(job, 2), 400),
    says: /part-00002.*: it has 400 bytes, the manifest says/,
  },
  {
    what: "a finished run without its manifest",
    before: finished,
    damage: ({ out }) => rm(join(out, "_manifest.json")),
    says: /_manifest.json: it is gone or damaged/,
  },
  {
    what: "a finished run with a damaged manifest",
    before: finished,
    damage: ({ out }) => truncate(join(out, "_manifest.json"), 100),
    says: /_manifest.json: it is gone or damaged/,
  },
  {
    what: "an unfinished run with a part that was cut short",
    before: unfinished,
    damage: async (job) => truncate(await partOf(job, 2), 400),
    says: /part-00002/,
  },
  {
    what: "an unfinished run with an empty part",
    before: unfinished,
    damage: async (job) => truncate(await partOf(job, 0), 0),
    says: /part-00000/,
  },
  {
    what: "a finished run with a damaged plan",
    before: finished,
    damage: ({ out }) => truncate(join(out, plan()), 100),
    says: /plan.json: it is damaged, or of another version/,
  },
  {
    what: "an unfinished run with a damaged plan",
    before: unfinished,
    damage: ({ out }) => truncate(join(out, plan()), 100),
    says: /plan.json: it is damaged, or of another version/,
  },
  {
    what: "a finished run that lost its plan, and is planned otherwise by now",
    before: finished,
    damage: async (job) => {
      await rm(join(job.out, plan()));
      await job.rewrite(otherPlan);
    },
    says: /_manifest.json: it belongs to plan [0-9a-f]{64}, and the folder's plan is/,
  },
  {
    what: "an unfinished run that lost its plan, and is planned otherwise by now",
    before: unfinished,
    damage: async (job) => {
      await rm(join(job.out, plan()));
      await job.rewrite(otherPlan);
    },
    says: /part-00000.*labelled as span 0 of run cancer-logistic-\w+, plan \w+; 3 more parts are damaged/,
  },
  {
    what: "a second run that lost its plan",
    before: twice,
    damage: ({ out }) => rm(join(out, plan(2))),
    says: /it has parts of run cancer-logistic-\w+-r2, and no .*plan.json/,
    number: 3,
  },
  {
    what: "a second run with a damaged plan",
    before: twice,
    damage: ({ out }) => truncate(join(out, plan(2)), 100),
    says: /plan.json: it is damaged, or of another version/,
    number: 3,
  },
  {
    what: "a second run whose plans are all gone",
    before: twice,
    damage: ({ out }) => rm(join(out, "_infer-batch"), { recursive: true }),
    says: /it has parts of run cancer-logistic-\w+-r2, and no .*plan.json/,
    number: 3,
  },
];
