import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { withSealed } from "../checks/span-profile.js";
import type { SpanOutput } from "../columnar/types.js";
import { JobError } from "../util/errors.js";

/**
 * Part of a span's profile names values and slices of few rows, which could identify a person. It is stored sealed with a
 * key of the run, which the target destroys when the run is over: from then on it cannot be read.
 */
const algorithm = "aes-256-gcm";
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** The span whose profile is sealed: the text of one span cannot be passed off as that of another. */
export interface SealedSpan {
  readonly runId: string;
  readonly span: number;
}

/** Makes the key of a run, as the text that targets store. */
export function newProfileKey(): string {
  return randomBytes(keyBytes).toString("base64");
}

/** Reads the key of a run; undefined for another text. */
export function parseProfileKey(text: string): Buffer | undefined {
  const key = Buffer.from(text, "base64");
  return key.length === keyBytes ? key : undefined;
}

/** The error for a run that its checks may hold, and whose features can no longer be read. `place`: where its key was. */
export function lostKey(runId: string, place: string): JobError {
  return new JobError(
    "OUTPUT_DAMAGED",
    `reading the profiles of run ${runId}: the key of its features, ${place}, is gone or is another one`,
    { hint: "restore it, or score again with --new-run", damage: { runId } },
  );
}

/** The warning of a run that its checks cannot hold, and whose features can no longer be read. */
export function lostKeyWarning(runId: string, found: string): string {
  return `reading the profiles of run ${runId}: ${found}; from now on no check sees its features and slices, and it is published without their profiles`;
}

/** The text of a span's profile as it is stored. `node bench/column-profiles.mjs` prints what that costs. */
export function sealedProfile(
  key: Buffer,
  of: SealedSpan,
  { profile, privateProfile }: Pick<SpanOutput, "profile" | "privateProfile">,
): string {
  return privateProfile === undefined ? profile : withSealed(profile, seal(key, of, privateProfile));
}

/** Base64 of nonce, tag and encrypted text, which is packed before, as encrypted bytes cannot be packed. */
function seal(key: Buffer, of: SealedSpan, text: string): string {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(algorithm, key, nonce, { authTagLength: tagBytes }).setAAD(aboutOf(of));
  const sealed = Buffer.concat([cipher.update(deflateRawSync(text, { level: 1 })), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString("base64");
}

/** Thrown for a text that was not sealed with this key, for this span. */
export class NotSealedWithKey extends Error {}

/** Reads what `sealedProfile` sealed. @throws NotSealedWithKey */
export function openSealed(key: Buffer, of: SealedSpan, sealed: string): string {
  const bytes = Buffer.from(sealed, "base64");
  const nonce = bytes.subarray(0, nonceBytes);
  const tag = bytes.subarray(nonceBytes, nonceBytes + tagBytes);
  try {
    const decipher = createDecipheriv(algorithm, key, nonce, { authTagLength: tagBytes });
    decipher.setAAD(aboutOf(of)).setAuthTag(tag);
    const packed = Buffer.concat([decipher.update(bytes.subarray(nonceBytes + tagBytes)), decipher.final()]);
    return inflateRawSync(packed).toString("utf8");
  } catch (cause) {
    throw new NotSealedWithKey(`the profile of span ${of.span} was not sealed with this key`, { cause });
  }
}

function aboutOf({ runId, span }: SealedSpan): Buffer {
  return Buffer.from(`${runId} ${span}`);
}
