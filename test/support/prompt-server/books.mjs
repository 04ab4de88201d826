// The books of the mock server: each request that it has answered, and would have billed. An answer that the client did
// not get whole is billed too: the tokens were made.
import { createHash } from "node:crypto";

export function createBooks({ price }) {
  const requests = new Map();
  const statuses = {};
  const total = { requests: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, cost: 0 };
  const twice = { requests: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, cost: 0 };
  const other = { received: 0, in_flight: 0, peak_in_flight: 0, cut: 0, resets: 0, gone: 0, garbled: 0 };
  return {
    count: other,
    status(code) {
      statuses[code] = (statuses[code] ?? 0) + 1;
    },
    /** Bills a request. `how`: "whole", or why the client has no use of it. Returns its entry, whose last `how` may change. */
    bill(hash, usage, how) {
      const cost = costOf(price, usage);
      const entry = requests.get(hash) ?? { times: [], usage };
      requests.set(hash, entry);
      add(total, usage, cost);
      if (entry.times.length > 0) {
        add(twice, usage, cost);
      }
      const time = { at: Date.now(), how };
      entry.times.push(time);
      return time;
    },
    totals: () => ({ ...other, statuses, billed: total, billed_again: twice, distinct: requests.size }),
    /** A line of JSON for each request that was billed. */
    *lines() {
      for (const [hash, { times, usage }] of requests) {
        yield `${JSON.stringify({ request: hash, times, usage })}\n`;
      }
    },
  };
}

function add(sum, { prompt_tokens: prompt, cached_tokens: cached, completion_tokens: completion }, cost) {
  sum.requests += 1;
  sum.prompt_tokens += prompt;
  sum.cached_tokens += cached;
  sum.completion_tokens += completion;
  sum.cost += cost;
}

function costOf(
  { input = 0, cached_input: cachedInput = input, output = 0 },
  { prompt_tokens: prompt, cached_tokens: cached, completion_tokens: completion },
) {
  return ((prompt - cached) * input + cached * cachedInput + completion * output) / 1e6;
}

export function hashOf(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}
