import { destination, type DestinationStream, pino } from "pino";
import { prettyFactory } from "pino-pretty";
import { printableLines } from "../util/printable.js";
import type { Log } from "../scoring/context.js";
import { writeMessage } from "./colors.js";
import type { Output, SafeOutput } from "./io.js";

/** How log lines look, and which are written. */
export interface LogOptions {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly format: "pretty" | "json";
  readonly color: boolean;
}

/** Makes a log on stderr. Lines are written synchronously, so that they survive a kill. */
export function createLog({ raw }: SafeOutput, { level, format, color }: LogOptions): Log {
  const stream = lineStream(raw);
  // Messages are made safe one by one: a whole pretty line contains colours.
  const shown = format === "json" ? (message: string) => message : printableLines;
  const logger = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    format === "json" ? jsonStream(stream) : prettyStream(stream, { color, isTerminal: raw.isTTY === true }),
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

/** Makes a log for short commands, which writes only warnings, as plain lines. */
export function createWarningLog(stderr: SafeOutput): Log {
  return {
    info() {},
    debug() {},
    warn: (message) => {
      writeMessage(stderr, `warning: ${message}\n`);
    },
  };
}

function lineStream(stderr: Output): DestinationStream {
  if (stderr.fd === undefined) {
    return stderr;
  }
  // Errors are ignored: a log that cannot be written must not end the job.
  return destination({ fd: stderr.fd, sync: true }).on("error", () => undefined);
}

function jsonStream(stream: DestinationStream): DestinationStream {
  return {
    write(line) {
      stream.write(printableLines(line));
    },
  };
}

function prettyStream(
  stream: DestinationStream,
  { color, isTerminal }: { readonly color: boolean; readonly isTerminal: boolean },
): DestinationStream {
  // What is read tomorrow, such as the log of cron, needs the date.
  const time = isTerminal ? "HH:MM:ss" : "yyyy-mm-dd HH:MM:ss";
  const pretty = prettyFactory({ colorize: color, ignore: "pid,hostname", translateTime: `SYS:${time}` });
  return {
    write(line) {
      stream.write(pretty(line));
    },
  };
}
