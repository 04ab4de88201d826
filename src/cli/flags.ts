import { InvalidArgumentError } from "commander";
import { type EngineSpec, parseProviders, providerNames } from "../job/jobfile/engine-spec.js";
import type { SafeIo } from "./io.js";

/** What an option does; with how its value is read, or what it may be, and what it is by default. */
export type Flag =
  | string
  | readonly [text: string, value: ((text: string, before: never) => unknown) | readonly string[], preset?: unknown];

/** A command, as `--help`, the docs and the parser have it. Its name and what it is for are in `program.ts`. */
export interface CommandLine {
  /** What its argument is, and what it is by default. Default: a spec, which must be given. */
  readonly argument?: readonly [text: string, preset?: string];
  readonly flags: Readonly<Record<string, Flag>>;
  readonly required?: readonly string[];
  /** Options that exclude another one. */
  readonly conflicts?: Readonly<Record<string, string>>;
  readonly examples?: readonly string[];
  /** Carries it out. @returns what it says, unless it has written that itself */
  readonly run: (argument: never, options: never, io: SafeIo) => Promise<CommandAnswer | void>;
}

/** What a command says on stdout. */
export interface CommandAnswer {
  /** For `--json`: a line of JSON; of several values, one each. */
  readonly json: () => unknown;
  /** Lines for people. @param width characters in a line of the terminal; undefined: there is none */
  readonly text: (width: number | undefined) => string | readonly string[];
  /** What the command ends with after it has said that. Default: it did all of its work. */
  readonly error?: unknown;
}

export const rowsLimit = 999_999_999;
export const paramFlag = paramAs("Set a param of the spec; may be repeated");
export const runFlag = { "--run <id>": "The run, as history lists it, in place of --param" };
export const jsonFlag = { "--json": "Print one line of JSON" };
export const logFlags: CommandLine["flags"] = {
  "--log-level <level>": ["Lowest level of log lines", ["debug", "info", "warn", "error"], "info"],
  "--log-format <format>": ["Format of log lines on stderr", ["pretty", "json"], "pretty"],
};
export const quietFlag = { "--quiet": "Print errors only" };
export const providerFlag: CommandLine["flags"] = {
  "--provider <names>": [
    "Execution providers to use in place of engine.providers, such as webgpu or cuda,cpu; auto: the first that works",
    providersOf,
  ],
};

export function paramAs(text: string): CommandLine["flags"] {
  return { "--param <name=value>": [text, collect, []] };
}

export function collect(value: string, all: readonly string[] = []): string[] {
  return [...all, value];
}

export function countOf(most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (!/^\d{1,9}$/.test(value) || number < 1 || number > most) {
      throw new InvalidArgumentError(`expected a number from 1 to ${most}`);
    }
    return number;
  };
}

export function toleranceOf(value: string): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number) || number < 0) {
    throw new InvalidArgumentError("expected a number from 0, such as 0.01");
  }
  return number;
}

function providersOf(value: string): EngineSpec["providers"] {
  const providers = parseProviders(value);
  if (providers === undefined) {
    throw new InvalidArgumentError(
      `expected auto, or some of ${providerNames.join(", ")} with commas between, cpu last`,
    );
  }
  return providers;
}
