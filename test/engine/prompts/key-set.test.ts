import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { createKeySet, keyList } from "#src/engine/prompts/texts/key-set.js";

test("a set of keys has those that were added and not deleted, however many there are", () => {
  const keys = Array.from({ length: 6000 }, (_, id) => createHash("sha256").update(String(id)).digest("hex"));
  const zeros = "0".repeat(64);
  const set = createKeySet();
  const expected: boolean[] = [];
  const found: boolean[] = [];
  for (const [id, key] of keys.entries()) {
    set.add(key);
    set.add(key);
    if (id % 3 === 0) {
      expected.push(true, false);
      found.push(set.delete(keys[id - (id % 2)] ?? ""), set.delete(keys[id - (id % 2)] ?? ""));
    }
  }
  expect(found).toEqual(expected);
  expect([set.delete(zeros), set.add(zeros), set.delete(zeros)]).toEqual([false, undefined, true]);
  const [some, others] = [keys.slice(0, 9), keys.slice(9, 12)];
  const few = createKeySet();
  few.addAll(keyList([...some, ...others]));
  few.deleteAll(keyList(others));
  expect(keys.filter((key) => few.has(key))).toEqual(some);
  const left = keys.filter((key) => set.delete(key));
  const deleted = new Set(Array.from({ length: 2000 }, (_, third) => keys[3 * third - ((3 * third) % 2)]));
  expect(left).toEqual(keys.filter((key) => !deleted.has(key)));
});
