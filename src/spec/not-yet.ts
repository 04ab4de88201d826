/**
 * What version 1 of the spec names and this release does not serve. Said by name instead of being called
 * an unknown key; never ignored.
 */
const keys: Readonly<Record<string, string>> = {
  "engine.device_id": "GPU providers",
};

const values: Readonly<Record<string, readonly string[]>> = {
  "engine.providers": ["cuda", "tensorrt"],
};

/** Why `key` (dotted, list positions left out) with this value is not served yet, or undefined. */
export function notYet(key: string, value: unknown): string | undefined {
  const feature = Object.hasOwn(keys, key) ? keys[key] : undefined;
  if (feature !== undefined) {
    return `not supported yet (${feature})`;
  }
  if (Object.hasOwn(values, key) && values[key]?.includes(String(value)) === true) {
    return `\`${String(value)}\` is not supported yet`;
  }
  return undefined;
}
