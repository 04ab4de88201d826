import type { Log } from "../scoring/context.js";

/**
 * The log of one of several runs. Its informational lines are logged at level debug, and a warning that another run has
 * logged is not repeated.
 */
export interface ValueLog extends Log {
  /** Logs a line about the run at level info. */
  announce(message: string): void;
}

/** @param warned the warnings that other runs have logged */
export function logOf(log: Log, { label, warned }: { readonly label: string; readonly warned: Set<string> }): ValueLog {
  return {
    announce(message) {
      log.info(`${label}: ${message}`);
    },
    info(message) {
      log.debug(`${label}: ${message}`);
    },
    debug(message) {
      log.debug(`${label}: ${message}`);
    },
    warn(message) {
      if (!warned.has(message)) {
        warned.add(message);
        log.warn(`${label}: ${message}`);
      }
    },
  };
}
