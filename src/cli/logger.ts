import { destination, type DestinationStream, pino } from "pino";
import { PinoPretty } from "pino-pretty";
import type { Log } from "../run/job.js";

export interface LogOptions {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly format: "pretty" | "json";
  readonly color: boolean;
}

const stderr = 2;

/** Log lines on stderr, written at once: what was said before a kill is there after it. */
export function createLog({ level, format, color }: LogOptions): Log {
  const stream: DestinationStream =
    format === "json"
      ? // A log that cannot be written must not end the job.
        destination({ fd: stderr, sync: true }).on("error", () => undefined)
      : PinoPretty({
          destination: stderr,
          sync: true,
          colorize: color,
          ignore: "pid,hostname",
          translateTime: "SYS:HH:MM:ss",
        });
  const logger = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    stream,
  );
  return {
    info: (message) => {
      logger.info(message);
    },
    warn: (message) => {
      logger.warn(message);
    },
    debug: (message) => {
      logger.debug(message);
    },
  };
}

/** https://no-color.org */
export function wantsColor(stream: { isTTY?: boolean }): boolean {
  return stream.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
}
