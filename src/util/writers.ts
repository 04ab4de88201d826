import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { errnoOf } from "./errors.js";

/** The writers of this process. It may have several jobs open at the same time, such as those of a backfill. */
const ownWriters = new Set<string>();

/** Returns a name that identifies this process among all processes on all machines. */
export function newWriter(): string {
  const writer = `${hostPart()}.${process.pid}.${randomBytes(4).toString("hex")}`;
  ownWriters.add(writer);
  return writer;
}

function hostPart(): string {
  return hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
}

/**
 * Whether a process has ended. Known for processes of this host only; one with our own pid that is not this process is
 * of an earlier container.
 * @param name begins with the name of a writer
 */
export function isDeadWriter(name: string): boolean {
  const [otherHost, pidText, random] = name.split(".");
  if (ownWriters.has(`${otherHost}.${pidText}.${random}`)) {
    return false;
  }
  const pid = Number(pidText);
  if (otherHost !== hostPart() || !Number.isSafeInteger(pid) || pid <= 0) {
    return false;
  }
  if (pid === process.pid) {
    return true;
  }
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoOf(error) === "ESRCH";
  }
}
