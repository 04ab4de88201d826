// What becomes of a request to the mock server: a function of the seed, of its prompt, and of how often that prompt was
// sent before, never of the order in which requests arrive. So the fate of a prompt is the same for every client.
import { createHash } from "node:crypto";

/** Shares of requests, between 0 and 1. `reset`: the connection ends before the answer. */
export const noFaults = {
  /** 429 with Retry-After, and without. */
  limited: 0,
  limitedSilently: 0,
  failed: 0,
  overloaded: 0,
  cut: 0,
  reset: 0,
  slow: 0,
  /** Of prompts: all their requests get 400. */
  poison: 0,
  /** Of prompts: their first answer is no JSON. */
  garbled: 0,
};

/** Faults as the torture of prompts has them. */
export const everyFault = {
  limited: 0.025,
  limitedSilently: 0.025,
  failed: 0.008,
  overloaded: 0.002,
  cut: 0.005,
  reset: 0.002,
  slow: 0.01,
  poison: 0.001,
  garbled: 0.01,
};

/** A number in [0, 1) from texts and numbers. */
function chance(...of) {
  return createHash("sha256").update(of.join("\n")).digest().readUInt32LE(0) / 2 ** 32;
}

export function isPoison({ seed, faults }, prompt) {
  return prompt.includes("POISON") || (faults.poison > 0 && chance(seed, "poison", prompt) < faults.poison);
}

export function isGarbled({ seed, faults }, prompt) {
  return faults.garbled > 0 && chance(seed, "garbled", prompt) < faults.garbled;
}

const kinds = ["limited", "limitedSilently", "failed", "overloaded", "cut", "reset"];

/** What becomes of the `nth` request with this prompt, from 0: one of `kinds`, or "answered". */
export function fateOf({ seed, faults }, prompt, nth) {
  let left = chance(seed, "fate", prompt, nth);
  for (const kind of kinds) {
    left -= faults[kind];
    if (left < 0) {
      return kind;
    }
  }
  return "answered";
}

/** How long the answer takes: `latencyMs`, and twenty times as long at times. */
export function delayOf({ seed, faults, latencyMs }, prompt, nth) {
  return faults.slow > 0 && chance(seed, "slow", prompt, nth) < faults.slow ? latencyMs * 20 + 20 : latencyMs;
}
