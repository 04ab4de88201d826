import { shellWord } from "../util/texts.js";
import type { ListedShard } from "./compare.js";
import { shortDigest } from "./identity.js";

/** Says how a shard differs from its plan; undefined when size and fingerprint are equal. */
export function pinDifference(planned: ListedShard, now: ListedShard): string | undefined {
  if (now.sizeBytes !== planned.sizeBytes) {
    return `it has ${now.sizeBytes} bytes, planned ${planned.sizeBytes}`;
  }
  if (now.fingerprint === planned.fingerprint) {
    return undefined;
  }
  const [timeNow, timePlanned] = [modifiedTime(now), modifiedTime(planned)];
  return timeNow === undefined || timePlanned === undefined
    ? `it has the planned ${planned.sizeBytes} bytes, but is ${now.fingerprint}, planned ${planned.fingerprint}`
    : `it has the planned ${planned.sizeBytes} bytes, but was modified ${timeNow}, planned ${timePlanned}`;
}

/** How a file is put back that differs from its plan. On disk its time decides: its bytes are not compared. */
export function restoreHint({ fingerprint }: Pick<ListedShard, "fingerprint">): string {
  return modifiedTime({ fingerprint }) === undefined
    ? "restore what was planned and run again"
    : "restore the planned file with its modification time (cp -p), and run again";
}

/**
 * The command that gives a file its planned time again, and when it helps; undefined if more than the time differs.
 * @param path the file, as a command names it
 */
export function touchHint(
  planned: ListedShard & { readonly sha256?: string | undefined },
  now: ListedShard,
  path: string,
): string | undefined {
  const time = modifiedTime(planned);
  if (time === undefined || now.sizeBytes !== planned.sizeBytes) {
    return undefined;
  }
  const same =
    planned.sha256 === undefined
      ? "if its content has not changed"
      : `if \`sha256sum\` still prints ${shortDigest(planned.sha256)}`;
  return `${same}, set its planned time again: touch -c -d ${time} ${shellWord(path)}`;
}

/** The time in a fingerprint, in RFC 3339 with nanoseconds, for `touch -d`; undefined for an ETag. */
function modifiedTime({ fingerprint }: Pick<ListedShard, "fingerprint">): string | undefined {
  const [, digits] = /^mtime:(\d{10,19})$/.exec(fingerprint) ?? [];
  if (digits === undefined) {
    return undefined;
  }
  const [seconds, nanoseconds] = [digits.slice(0, -9), digits.slice(-9)];
  const fraction = nanoseconds.replace(/0+$/, "");
  return `${new Date(Number(seconds) * 1000).toISOString().slice(0, 19)}${fraction === "" ? "" : `.${fraction}`}Z`;
}
