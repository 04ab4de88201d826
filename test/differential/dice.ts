import { randomOf } from "../support/random.js";

/** Random choices of one case: the same seed makes the same ones. */
export interface Dice {
  /** In [0, 1). */
  number(): number;
  /** An integer in [low, high]. */
  int(low: number, high: number): number;
  /** Whether a thing of this probability happens. */
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
  /** Up to `count` different elements, in a random order. */
  some<T>(list: readonly T[], count: number): T[];
}

export function diceOf(seed: number): Dice {
  const number = randomOf(seed);
  const int = (low: number, high: number): number => low + Math.floor(number() * (high - low + 1));
  return {
    number,
    int,
    chance: (probability) => number() < probability,
    pick: (list) => list[int(0, list.length - 1)] as (typeof list)[number],
    some(list, count) {
      const left = [...list];
      const taken: (typeof list)[number][] = [];
      while (taken.length < count && left.length > 0) {
        taken.push(...left.splice(int(0, left.length - 1), 1));
      }
      return taken;
    },
  };
}
