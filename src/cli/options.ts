import { InvalidArgumentError, Option } from "commander";
import { type EngineSpec, parseProviders, providerNames } from "../spec/engine-spec.js";
import { timeOfDay } from "../util/time-of-day.js";

/** The option of commands that read a spec: `--param name=value`, repeatable. */
export const param = (description = "Set a param of the spec; may be repeated"): Option =>
  new Option("--param <name=value>", description).default([], "none").argParser(collect);

/** The option of commands that show a run: `--run`. */
export const run = (): Option => new Option("--run <id>", "The run, as history lists it, in place of --param");

/** The option of commands that log: `--log-level`. */
export const logLevel = (): Option =>
  new Option("--log-level <level>", "Lowest level of log lines")
    .choices(["debug", "info", "warn", "error"])
    .default("info");

/** The option of commands that log: `--log-format`. */
export const logFormat = (): Option =>
  new Option("--log-format <format>", "Format of log lines on stderr").choices(["pretty", "json"]).default("pretty");

/** The option of commands that can do with a part of the rows: `--limit`. */
export const limit = (description: string): Option =>
  new Option("--limit <n>", description).argParser(countOf(999_999_999));

/** Parses execution providers. @throws InvalidArgumentError */
export function providersOf(value: string): EngineSpec["providers"] {
  const providers = parseProviders(value);
  if (providers === undefined) {
    throw new InvalidArgumentError(
      `expected auto, or some of ${providerNames.join(", ")} with commas between, cpu last`,
    );
  }
  return providers;
}

/** Appends the value of an option that may be repeated. */
export function collect(value: string, all: readonly string[] = []): string[] {
  return [...all, value];
}

/** Parses the text of an option that is given once. @throws InvalidArgumentError */
export function onceNotEmpty(value: string, before: string | undefined): string {
  if (before !== undefined) {
    throw new InvalidArgumentError("expected one text: the option was given before");
  }
  if (value.trim() === "") {
    throw new InvalidArgumentError("expected a text that is not empty, or no such option");
  }
  return value;
}

/** Parses a number from 1. @throws InvalidArgumentError */
export function countOf(most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (!/^\d{1,9}$/.test(value) || number < 1 || number > most) {
      throw new InvalidArgumentError(`expected a number from 1 to ${most}`);
    }
    return number;
  };
}

/** Parses an age in days or weeks; returns days. @throws InvalidArgumentError */
export function daysOf(value: string): number {
  const [, number, unit] = /^(\d{1,5})([dw])$/.exec(value) ?? [];
  if (number === undefined) {
    throw new InvalidArgumentError("expected a number of days or weeks, such as 90d or 12w");
  }
  return Number(number) * (unit === "w" ? 7 : 1);
}

/** Parses a time of day. @throws InvalidArgumentError */
export function timeOf(value: string): string {
  if (!timeOfDay.test(value)) {
    throw new InvalidArgumentError("expected a time of day such as 06:00");
  }
  return value;
}

/** Parses a TCP port, 0 included. @throws InvalidArgumentError */
export function portOf(value: string): number {
  const port = Number(value);
  if (!/^\d{1,5}$/.test(value) || port > 65_535) {
    throw new InvalidArgumentError("expected a number from 0 to 65535");
  }
  return port;
}

/** Parses a number from 0, which is finite. @throws InvalidArgumentError */
export function toleranceOf(value: string): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number) || number < 0) {
    throw new InvalidArgumentError("expected a number from 0, such as 0.01");
  }
  return number;
}

/** Plans a new run. */
export function newRunOption(): Option {
  return new Option(
    "--new-run",
    "If the run of this spec is complete, held, discarded or damaged, its table refuses its rows, or its input, model or spec changed, plan a new run; otherwise continue the run",
  );
}

/** Lets a new run reuse predictions. */
export function reuseOption(): Option {
  return new Option(
    "--reuse",
    "Let --new-run take the predictions of unchanged rows from the run that it replaces, as the spec's reuse says. Default: a new run scores all rows",
  );
}
