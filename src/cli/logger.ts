import { writeSync } from "node:fs";
import { styleText } from "node:util";
import { type Progress, lineProgress, silentProgress } from "../report/progress.js";
import { errnoOf } from "../base/errors.js";
import { printableLines } from "../base/texts.js";
import type { Log } from "../flow/opened-job.js";
import { type Output, type SafeOutput, wantsColor, writeNotice } from "./io.js";

/** The options of a command that logs. */
export interface LogOptions {
  readonly quiet?: boolean;
  readonly logLevel: "debug" | "info" | "warn" | "error";
  readonly logFormat: "pretty" | "json";
}

const levels = { debug: "blue", info: "green", warn: "yellow", error: "red" } as const;
type Level = keyof typeof levels;

/** Makes a log on stderr. Lines are written synchronously, so that they survive a kill. */
export function createLog({ raw }: SafeOutput, { quiet, logLevel, logFormat: format }: LogOptions): Log {
  const order = Object.keys(levels);
  const least = order.indexOf(quiet === true ? "error" : logLevel);
  const line = format === "json" ? jsonLine : prettyLine;
  const log = (level: Level, message: string): void => {
    if (order.indexOf(level) >= least) {
      writeNow(raw, line(level, message, raw));
    }
  };
  return {
    info: (message) => log("info", message),
    warn: (message) => log("warn", message),
    debug: (message) => log("debug", message),
  };
}

function jsonLine(level: Level, msg: string): string {
  return printableLines(`${JSON.stringify({ level, time: new Date().toISOString(), msg })}\n`);
}

function prettyLine(level: Level, message: string, raw: Output): string {
  const now = new Date();
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(twoDigits).join(":");
  const date = [now.getFullYear(), now.getMonth() + 1, now.getDate()].map(twoDigits).join("-");
  // What is read tomorrow, such as the log of cron, needs the date.
  const when = raw.isTTY === true ? time : `${date} ${time}`;
  const paint = (color: "cyan" | (typeof levels)[Level], text: string): string =>
    wantsColor(raw) ? styleText(color, text, { validateStream: false }) : text;
  // The message alone is made safe: the whole line contains colours.
  return `[${when}] ${paint(levels[level], level.toUpperCase())}: ${paint("cyan", printableLines(message))}\n`;
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}

/** How long a pipe is left alone that takes no bytes now. */
const fullPipeMs = 10;

/** Writes a text before it returns. Errors are ignored: a log that cannot be written must not end the job. */
function writeNow(raw: Output, text: string): void {
  if (raw.fd === undefined) {
    raw.write(text);
    return;
  }
  const bytes = Buffer.from(text);
  for (let written = 0; written < bytes.length; ) {
    try {
      written += writeSync(raw.fd, bytes, written);
    } catch (error) {
      if (errnoOf(error) !== "EAGAIN") {
        return;
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, fullPipeMs);
    }
  }
}

/** Makes a log for short commands, which writes only warnings, as plain lines. */
export function createWarningLog(stderr: SafeOutput): Log {
  const told = new Set<string>();
  return {
    info() {},
    debug() {},
    warn: (message) => {
      if (!told.has(message)) {
        told.add(message);
        writeNotice(stderr, `warning: ${message}\n`);
      }
    },
  };
}

const nowMs = (): number => performance.now();

/** Shows progress as a bar on a terminal, else as lines of a log. @param log logs a line */
export async function chooseProgress(
  { progress, quiet }: { readonly progress: boolean; readonly quiet?: boolean | undefined },
  log: (line: string) => void,
  stderr: Output,
): Promise<Progress> {
  if (!progress || quiet === true) {
    return silentProgress;
  }
  if (stderr.isTTY !== true) {
    return lineProgress(log, nowMs);
  }
  const { barProgress } = await import("../report/progress-bar.js");
  return barProgress(stderr, nowMs);
}
