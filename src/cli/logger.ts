import { destination, type DestinationStream, pino } from "pino";
import { prettyFactory } from "pino-pretty";
import { printableLines } from "../util/printable.js";
import type { Log } from "../scoring/context.js";
import type { Output, SafeOutput } from "./io.js";

export interface LogOptions {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly format: "pretty" | "json";
  readonly color: boolean;
}

/** Log lines on stderr, written at once: what was said before a kill is there after it. */
export function createLog({ raw }: SafeOutput, { level, format, color }: LogOptions): Log {
  const stream = lineStream(raw);
  // Not of the whole pretty line, which has colours.
  const shown = format === "json" ? (message: string) => message : printableLines;
  const logger = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    format === "json" ? jsonStream(stream) : prettyStream(stream, color),
  );
  return {
    info: (message) => {
      logger.info(shown(message));
    },
    warn: (message) => {
      logger.warn(shown(message));
    },
    debug: (message) => {
      logger.debug(shown(message));
    },
  };
}

/** Warnings only, as lines for people: of commands that end soon. */
export function warningsOnly(stderr: SafeOutput): Log {
  return {
    info() {},
    debug() {},
    warn: (message) => {
      stderr.write(`warning: ${message}\n`);
    },
  };
}

function lineStream(stderr: Output): DestinationStream {
  if (stderr.fd === undefined) {
    return stderr;
  }
  // A log that cannot be written must not end the job.
  return destination({ fd: stderr.fd, sync: true }).on("error", () => undefined);
}

function jsonStream(stream: DestinationStream): DestinationStream {
  return {
    write(line) {
      stream.write(printableLines(line));
    },
  };
}

function prettyStream(stream: DestinationStream, color: boolean): DestinationStream {
  const pretty = prettyFactory({ colorize: color, ignore: "pid,hostname", translateTime: "SYS:HH:MM:ss" });
  return {
    write(line) {
      stream.write(pretty(line));
    },
  };
}

/** https://no-color.org */
export function wantsColor(stream: { isTTY?: boolean }): boolean {
  return stream.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
}
