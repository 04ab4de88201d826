/** Whether a value of unknown origin is a `T`. */
export type Check<T> = (value: unknown) => value is T;

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** The fields of a value of unknown origin; none if it is no object. */
export function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

export function isUndefined(value: unknown): value is undefined {
  return value === undefined;
}

export function isInteger(value: unknown): value is number {
  return Number.isInteger(value);
}

/** Whether a value is a whole number of things. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Checks the `kind` of one of several variants; `kinds` names them all. */
export function isOfKind<T extends { readonly kind: string }>(kinds: Readonly<Record<T["kind"], true>>): Check<T> {
  return (value): value is T =>
    isRecord(value) && typeof value["kind"] === "string" && Object.hasOwn(kinds, value["kind"]);
}
