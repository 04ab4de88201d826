import { type CommandLine, paramFlag, countOf, jsonFlag, type CommandAnswer } from "../flags.js";
import { count } from "../../base/shown-numbers.js";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { roleOf, timesLimit } from "../../checks/check.js";
import { checkOf } from "../../checks/checks.js";
import { fitTable } from "../../report/table.js";
import { type JudgedNights, judgeNights } from "../../run/status.js";

export const checksCommand: CommandLine = {
  flags: { ...paramFlag, "--last <count>": ["Number of runs to judge", countOf(1000), 60], ...jsonFlag },
  examples: ["infer-batch checks job.yaml --last 60", "infer-batch checks job.yaml --last 30 --json"],
  run: checks,
};

interface ChecksOptions extends JobOptions {
  readonly last: number;
  readonly json?: boolean;
}

async function checks(spec: string, options: ChecksOptions): Promise<CommandAnswer> {
  await using opened = await openLoaded(await readSpec(spec, options, { standIns: "dates" }), spec);
  const judged = await judgeNights(opened.job, opened.sink, options.last);
  return { json: () => nightsJson(judged), text: (width) => nightsText(judged, width) };
}

function nightsJson({ factor, nights, columns }: JudgedNights): object {
  return {
    factor,
    nights: nights.map(({ runId, date, outcome, known, results }) => ({
      run_id: runId,
      date,
      outcome,
      nights_known: known,
      results: results.filter(({ level }) => level !== "pass"),
    })),
    columns: columns.map(({ held, warned, farthest, date }) => ({
      column: farthest.column,
      role: roleOf(farthest),
      nights_held: held,
      nights_warned: warned,
      farthest: { date, check: farthest.check, times: timesLimit(farthest) },
    })),
  };
}

const headings = ["column", "held", "warned", "farthest", "night", "what"];

function nightsText({ factor, nights, columns }: JudgedNights, width: number | undefined): string[] {
  const held = nights.filter(({ outcome }) => outcome === "hold").length;
  const warned = nights.filter(
    ({ outcome, results }) => outcome !== "hold" && results.some(({ level }) => level === "warn"),
  );
  const dates = `${nights[0]?.date} to ${nights.at(-1)?.date}`;
  const rows = columns.map(({ held: holds, warned: warns, farthest, date, passesWith }) => {
    const role = roleOf(farthest);
    const name = role === "run" ? "(the run)" : `${farthest.column}${role === "output" ? " (output)" : ""}`;
    const far = Number.isFinite(passesWith) ? `factor ${roundedUp(passesWith)}` : "";
    const what = checkOf(farthest).say(farthest, { dateOf: (runId) => dateOf(nights, runId) });
    return [name, String(holds), String(warns), far, date, what];
  });
  return [
    `${count(nights.length, "published night")}, ${dates}, each judged as if it were tonight with factor ${factor}: ${held} held, ${warned.length} warned`,
    ...(rows.length === 0
      ? ["no column would have held or warned"]
      : [
          ...fitTable([headings, ...rows], { right: [1, 2], width, hasNotes: true }),
          "farthest: with a factor above this one, the column would not have held or warned",
        ]),
  ];
}

function dateOf(nights: JudgedNights["nights"], runId: string): string {
  return nights.find((night) => night.runId === runId)?.date ?? runId;
}

/** A factor with two digits that is not smaller. */
function roundedUp(factor: number): number {
  const unit = 10 ** (Math.floor(Math.log10(factor)) - 1);
  return Number((Math.ceil(factor / unit) * unit).toPrecision(2));
}
