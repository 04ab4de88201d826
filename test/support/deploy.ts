import { readdirSync, readFileSync } from "node:fs";
import { extname, join, relative } from "node:path";
import { parseAllDocuments } from "yaml";
import { exitCodes } from "#src/base/errors.js";
import { projectFolder } from "./cli.js";

export const deployFolder = join(projectFolder, "deploy");

/**
 * Exit codes that no retry mends: a scheduler gives up. 67 is a run that a person must decide about. 137 is SIGKILL's,
 * and no code of ours.
 */
export const finalCodes = [64, 65, 66, 67] as const;
export const retriedCodes = [75, 130, 137, 143] as const;
/** What `errors.ts` ends with, so that a code that is new there is decided upon everywhere. */
export const knownCodes = [...new Set<number>([...Object.values(exitCodes), 67, 137])].toSorted(
  (one, other) => one - other,
);

export function deployText(path: string): string {
  return readFileSync(join(deployFolder, path), "utf8");
}

/** Files below deploy/, and the Dockerfile. */
export function deployFiles(): string[] {
  const entries = readdirSync(deployFolder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return [...files.map((path) => relative(deployFolder, path)), "../Dockerfile"].toSorted();
}

/** The words of each command line `infer-batch …` in a file. */
export function commandLines(path: string, text: string): string[][] {
  return scriptsOf(path, text)
    .flatMap((script) =>
      [...script.matchAll(/(?:^|[\s/])infer-batch(?= )/g)].map(({ index, 0: { length } }) =>
        shellWords(script.slice(index + length)),
      ),
    )
    .filter((words) => words.length > 0);
}

/** The parts of a file that are commands for a shell, or become one. */
function scriptsOf(path: string, text: string): string[] {
  const lines = text.replaceAll(/\\\n\s*/g, "").split("\n");
  switch (extname(path)) {
    case ".json":
    case ".yaml":
      return parseAllDocuments(text).flatMap((document) => stringsOf(document.toJS()));
    case ".py":
      return lines.flatMap((line) => {
        const [, words] = /\["(infer-batch", .*)\]/.exec(line) ?? []; // a list of words
        return words === undefined
          ? [...line.matchAll(/(["'])((?:(?!\1).)*)\1/g)].map(([, , script]) => script ?? "")
          : [words.replaceAll(/,(?= )|"/g, "")];
      });
    case ".md":
      return [...text.matchAll(/^```\w*\n(.*?)^```/gms)].flatMap(([, block]) => (block ?? "").split("\n"));
    case ".cron":
      // Five times, a user, a command.
      return lines.flatMap((line) => /^(?:[\d*]\S* +){5}\S+ (.*)$/.exec(line)?.[1] ?? []);
    case ".service":
    case ".timer":
    case ".conf":
      return lines.flatMap((line) => /^Exec\w*=(.*)$/.exec(line)?.[1] ?? []);
    case "":
      // A Dockerfile: what it runs, and how its comments say it is used.
      return lines.map((line) => line.replaceAll(/[[\],"]/g, ""));
    default:
      throw new Error(`${path}: where its commands are is not known`);
  }
}

function stringsOf(value: unknown): string[] {
  if (typeof value === "string") {
    return [value];
  }
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) {
    return [value.join(" ")]; // the words of a command
  }
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(stringsOf) : [];
}

/** Words up to the end of the command: quotes are taken away, `$…` stays. */
function shellWords(script: string): string[] {
  const [line = ""] = script.split("\n", 1);
  const [command = ""] = /^(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^"'\\;&|<>()`])*/.exec(line) ?? [];
  const words = command.match(/(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^"'\\\s])+/g) ?? [];
  return words.map((word) => word.replaceAll(/["']/g, ""));
}
