import { z } from "../../util/zod.js";

/** Headers that requests have anyway, or that are about the connection. */
const own: ReadonlySet<string> = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "inference-header-content-length",
  "transfer-encoding",
]);

const nameError = "expected the name of an HTTP header that requests do not have anyway, such as api-key";

/** HTTP headers by name. Their values are secrets. */
export const requestHeaders = z.record(
  z
    .string()
    .refine((name) => /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$/.test(name) && !own.has(name.toLowerCase()), nameError),
  z.string().min(1),
);
