import { destination, pino } from "pino";
import { prettyFactory } from "pino-pretty";
import { type Progress, barProgress, lineProgress, silentProgress } from "../report/progress.js";
import { printableLines } from "../base/texts.js";
import type { Log } from "../flow/opened-job.js";
import { type Output, type SafeOutput, wantsColor, writeNotice } from "./io.js";

/** The options of a command that logs. */
export interface LogOptions {
  readonly quiet?: boolean;
  readonly logLevel: "debug" | "info" | "warn" | "error";
  readonly logFormat: "pretty" | "json";
}

/** Makes a log on stderr. Lines are written synchronously, so that they survive a kill. */
export function createLog({ raw }: SafeOutput, { quiet, logLevel, logFormat: format }: LogOptions): Log {
  // Errors are ignored: a log that cannot be written must not end the job.
  const stream = raw.fd === undefined ? raw : destination({ fd: raw.fd, sync: true }).on("error", () => undefined);
  // What is read tomorrow, such as the log of cron, needs the date.
  const time = raw.isTTY === true ? "HH:MM:ss" : "yyyy-mm-dd HH:MM:ss";
  const pretty = prettyFactory({ colorize: wantsColor(raw), ignore: "pid,hostname", translateTime: `SYS:${time}` });
  const isJson = format === "json";
  // Messages are made safe one by one: a whole pretty line contains colours.
  const shown = isJson ? (message: string) => message : printableLines;
  const logger = pino(
    {
      level: quiet === true ? "error" : logLevel,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write: (line) => void stream.write(isJson ? printableLines(line) : pretty(line)) },
  );
  return {
    info: (message) => logger.info(shown(message)),
    warn: (message) => logger.warn(shown(message)),
    debug: (message) => logger.debug(shown(message)),
  };
}

/** Makes a log for short commands, which writes only warnings, as plain lines. */
export function createWarningLog(stderr: SafeOutput): Log {
  return {
    info() {},
    debug() {},
    warn: (message) => {
      writeNotice(stderr, `warning: ${message}\n`);
    },
  };
}

const nowMs = (): number => performance.now();

/** Shows progress as a bar on a terminal, else as lines of a log. @param log logs a line */
export function chooseProgress(
  { progress, quiet }: { readonly progress: boolean; readonly quiet?: boolean | undefined },
  log: (line: string) => void,
  stderr: Output,
): Progress {
  if (!progress || quiet === true) {
    return silentProgress;
  }
  return stderr.isTTY === true ? barProgress(stderr, nowMs) : lineProgress(log, nowMs);
}
