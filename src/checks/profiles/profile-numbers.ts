import { profileInLoops } from "./number-loops.js";
import type { NextNumbers, NumberProfile, ProfileLimits } from "./number-profile.js";
import { profilePlainly } from "./plain-numbers.js";

/** The profile of all numbers that come. */
export function profileNumbers(next: NextNumbers, limits: ProfileLimits): NumberProfile {
  return profileInLoops(next, limits) ?? profilePlainly(next, limits);
}
