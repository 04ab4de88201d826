import type { Log } from "../scoring/context.js";

/** The log of one of several runs. What each run tells of itself is for debugging; warnings are not repeated. */
export interface ValueLog extends Log {
  /** Logs a line on the run for everybody. */
  tell(message: string): void;
}

/** @param told warnings that other runs have logged */
export function logOf(log: Log, { label, told }: { readonly label: string; readonly told: Set<string> }): ValueLog {
  return {
    tell(message) {
      log.info(`${label}: ${message}`);
    },
    info(message) {
      log.debug(`${label}: ${message}`);
    },
    debug(message) {
      log.debug(`${label}: ${message}`);
    },
    warn(message) {
      if (!told.has(message)) {
        told.add(message);
        log.warn(`${label}: ${message}`);
      }
    },
  };
}
