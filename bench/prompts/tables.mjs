// The results as Markdown, and their place in bench/results-prompts.md.
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";

const page = fileURLToPath(new URL("../results-prompts.md", import.meta.url));
const [begin, end] = ["<!-- bench:prompts-peers -->", "<!-- /bench:prompts-peers -->"];

/** A table for each contest, the versions, and the errors that ended runs. */
export function tablesOf({ contests, results, rows, versions, load }) {
  const tables = contests.map(({ id, what }) => {
    const own = results.filter(({ contest }) => contest === id);
    return [
      `**${what}.**${refusedIn(own)}`,
      "",
      "| | job | lost | doubled | wrong | paid twice | 429 | limit used | seconds | CPU seconds |",
      "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
      ...own.map(rowOf),
      "",
    ].join("\n");
  });
  const errors = results.flatMap(({ name, attempts }) =>
    attempts
      .filter(isFailed)
      .map(({ complained, code }) => `- ${name}: \`${errorOf(complained) ?? `exit code ${code}`}\``),
  );
  return [
    `${rows.toLocaleString("en")} prompts, with ${versions.join(", ")}, on ${availableParallelism()} cores (load average before: ${load.toFixed(1)}).`,
    "",
    ...tables,
    ...(errors.length === 0 ? [] : ["What ended the jobs that failed:", "", ...new Set(errors), ""]),
  ].join("\n");
}

const isFailed = ({ ending, code }) => ending === "ended" && code !== 0;

function refusedIn([first]) {
  const refused = first?.output.refused ?? 0;
  return refused === 0 ? "" : ` The server refuses ${refused} of the prompts.`;
}

function rowOf({ name, attempts, output, books }) {
  const sum = (of) => attempts.reduce((total, one) => total + of(one), 0);
  const cells = [
    name,
    stateOf(attempts.at(-1), output),
    lostOf(output),
    output.doubled,
    output.wrong,
    paidTwice(books),
    books.limited,
    attempts.length > 1 || books.share === undefined ? "" : `${(books.share * 100).toFixed(1)}%`,
    sum(({ seconds }) => seconds).toFixed(1),
    sum(({ cpuSeconds = Number.NaN }) => cpuSeconds).toFixed(1),
  ];
  return `| ${cells.join(" | ")} |`;
}

function stateOf({ ending, code, seconds }, { broken }) {
  if (ending === "late") {
    return `ended after ${seconds.toFixed(0)} s`;
  }
  const files = broken === 0 ? "" : `, ${broken} unreadable file${broken === 1 ? "" : "s"}`;
  return `${code === 0 ? "complete" : "failed"}${files}`;
}

function lostOf({ lost, empty }) {
  return empty === 0 ? lost : `${lost} (${empty === lost ? "" : `${empty} `}NULL)`;
}

function paidTwice({ again, paid, undelivered }) {
  if (again === 0) {
    return 0;
  }
  const onTheWay = undelivered === 0 ? "" : `; ${undelivered} lost on the way`;
  return `${again} (${((again / paid) * 100).toFixed(1)}%${onTheWay})`;
}

/** The error that ended a Python program: its kind, and the beginning of its message. Ray wraps it in errors of its own. */
function errorOf(text) {
  const named = [...text.matchAll(/^((?:\w+\.)*\w+(?:Error|Exception))(?:: (.*))?$/gm)].map(
    ([, kind, message = ""]) => ({
      kind,
      message: message.slice(0, 100).replaceAll("`", "'"),
    }),
  );
  const last = named.findLast(({ kind }) => !kind.startsWith("ray.")) ?? named.at(-1);
  return last === undefined ? undefined : `${last.kind}: ${last.message}`;
}

/** Puts the tables into bench/results-prompts.md, in place of those that are there. */
export function writeTables(text) {
  const before = readFileSync(page, "utf8");
  const [from, to] = [before.indexOf(begin), before.indexOf(end)];
  if (from < 0 || to < from) {
    throw new Error(`writing ${page}: it has no place for the tables, between ${begin} and ${end}`);
  }
  writeFileSync(page, `${before.slice(0, from + begin.length)}\n${text}\n${before.slice(to)}`);
}
