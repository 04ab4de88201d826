import { z } from "../../base/zod.js";
import { isHttpUri, isMlflowUri, modelUriProblem } from "./uri.js";

/** JavaScript loses a key `__proto__` of many objects. */
export const outputName = /^(?!__proto__$)[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** Marks a custom check, whose message follows the value that was found. */
export const showFound = { showFound: true };

/** Refuses a key below the mapping that is checked. */
export type Refuse = (path: readonly (string | number)[], message: string, params?: typeof showFound) => void;

/** A check of keys that must fit one another, as the schema takes it. */
export function checking<T>(check: (given: T, refuse: Refuse) => void): (given: T, context: z.RefinementCtx) => void {
  return (given, context) => {
    check(given, (path, message, params) => {
      context.addIssue({ code: "custom", path: [...path], message, ...(params && { params }) });
    });
  };
}

/**
 * What a changed key means for a run that is planned already. `plan`: the run is refused (66) where its rows would differ, or
 * keeps what its plan says. `attempt`: it applies from the next attempt on. `verdict`: it applies until the verdict is made,
 * which records it. `secret`: of the attempt, and no message shows it; `${file:…}` may stand for it.
 */
type KeyClass = "plan" | "attempt" | "verdict" | "secret";

/* The class stands at the key, as `.meta(plan)`; a key without one has that of the keys around it. */
const classed = (keyClass: KeyClass): { readonly class: KeyClass } => ({ class: keyClass });
export const plan = classed("plan");
export const attempt = classed("attempt");
export const verdict = classed("verdict");
export const secret = classed("secret");

/** A number, or the text of one where `${…}` put it. */
export function countFrom(minimum: number, maximum: number): z.ZodType<number> {
  const error = `expected a number from ${minimum} to ${maximum}`;
  return numberOrText(minimum, maximum, error);
}

function numberOrText(minimum: number, maximum: number, error: string): z.ZodType<number> {
  const number = z.int({ error }).min(minimum, { error }).max(maximum, { error });
  const text = z
    .string()
    .regex(/^(\d{1,15}|\$\{.+\})$/)
    .transform(Number)
    .pipe(number);
  return z.union([number, text], { error });
}

/** `auto`, or a number as `count` takes it. */
export function autoOrCount(minimum: number, maximum: number): z.ZodType<number | "auto"> {
  const error = `expected auto or a number from ${minimum} to ${maximum}`;
  return z.union([z.literal("auto"), numberOrText(minimum, maximum, error)], { error });
}

const numberError = "expected a number";

/** Any finite number, or the text of one where `${…}` put it. */
export const anyNumber: z.ZodType<number> = z.union(
  [
    z.number({ error: numberError }),
    z
      .string()
      .regex(/^(-?\d{1,15}(\.\d{1,15})?|\$\{.+\})$/)
      .transform(Number)
      .pipe(z.number({ error: numberError })),
  ],
  { error: numberError },
);

// No file system takes a NUL, and DuckDB's SQL ends at one.
export const textOrEmpty = z.string().regex(/^[^\0]*$/, "expected a text without NUL characters");
export const text = textOrEmpty.min(1);
export const name = z
  .string()
  .regex(outputName, "expected letters, digits and _, at most 63, not starting with a digit");

/** A duration in one of some units, such as "30s", as a number. */
export function durationIn(units: Readonly<Record<string, number>>, examples: string): z.ZodType<number> {
  const error = `expected a duration such as ${examples}`;
  return z
    .string({ error })
    .regex(new RegExp(`^(\\d{1,6}(${Object.keys(units).join("|")})|\\$\\{.+\\})$`), error)
    .transform((given) => Number.parseInt(given, 10) * (units[given.replace(/^\d+/, "")] ?? Number.NaN))
    .pipe(z.number({ error }));
}

/** In seconds. */
export const duration = durationIn({ s: 1, m: 60, h: 3600, d: 86_400 }, "30s, 15m, 4h or 2d");

/** A percentage as a share: "60%" is 0.6. */
export function percentage(most: number): z.ZodType<number> {
  const error = `expected a percentage such as 1%, at most ${most}%`;
  return z
    .string({ error })
    .regex(/^(\d{1,4}(\.\d{1,6})?%|\$\{.+\})$/, { error, abort: true })
    .refine((given) => Number.parseFloat(given) <= most, { error, params: showFound, abort: true })
    .transform((given) => Number.parseFloat(given) / 100);
}

const bytesOf: Readonly<Record<string, number>> = { M: 1024 ** 2, G: 1024 ** 3, T: 1024 ** 4 };

/** `auto`, or a size such as "512MiB" or "2GiB": bytes, at least so many MiB. */
export function autoOrSize(leastMiB: number): z.ZodType<number | "auto"> {
  const error = `expected auto or a size from ${leastMiB}MiB, such as 512MiB or 2GiB`;
  const size = z
    .string({ error })
    .regex(/^(\d{1,6}(\.\d{1,3})?[MGT]iB|\$\{.+\})$/, error)
    .transform((given) => Math.floor(Number(given.slice(0, -3)) * (bytesOf[given.at(-3) ?? ""] ?? Number.NaN)))
    .pipe(z.number({ error }).min(leastMiB * 1024 ** 2, { error }));
  return z.union([z.literal("auto"), size], { error });
}

/** Whether a text is the name of a time zone. */
export function isTimeZone(value: string): boolean {
  if (value === "UTC") {
    return true; // the others need no comparison
  }
  try {
    return Intl.DateTimeFormat("en", { timeZone: value }).resolvedOptions().timeZone !== "";
  } catch {
    return false; // no time zone: the schema says what is due
  }
}

/** The path or URI of a tokenizer.json. */
export const tokenizerPath = text.superRefine((path, context) => {
  const message =
    isHttpUri(path) || isMlflowUri(path)
      ? "expected a file, s3://, gs://, az:// or hf://: a tokenizer is read from these only"
      : modelUriProblem(path);
  if (message !== undefined) {
    context.addIssue({ code: "custom", message });
  }
});
